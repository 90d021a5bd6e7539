"""A Sphinx extension: every chapter as a deck of slides, beside its page, made from the page's own text.

reveal.js is copied out of the package `sphinx-revealjs`, which is not loaded as an extension: it would write the whole
book as slides, with everything that a section holds on one. `slides.html` says how a page is cut into slides.
"""

import json
import shutil
from importlib.metadata import distribution
from pathlib import Path
from string import Template

from offline_book import SCRIPT
from sphinx.errors import ExtensionError

PACKAGE = "sphinx-revealjs"
FILES = ("dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js", "LICENSE")
CHAPTERS = "chapters/"
BUTTON = {
    "type": "link",
    "text": "",
    "tooltip": "Slides of this chapter",
    "icon": "fas fa-person-chalkboard",
    "label": "slides-button",
}


def copy_reveal(app):
    """Put the files of reveal.js below `_static`; raise ExtensionError if the package lacks one."""
    if app.builder.format != "html":
        return
    target = Path(app.outdir) / "_static" / "reveal"
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        source = Path(distribution(PACKAGE).locate_file(f"sphinx_revealjs/_static/revealjs/{name}"))
        if not source.is_file():
            raise ExtensionError(f"{PACKAGE} has no {name}; install the pinned requirements")
        shutil.copy(source, target)


def write_deck(app, pagename, templatename, context, doctree):
    """Write a chapter's slides as its page is written, and put a link to them among the page's buttons."""
    if app.builder.format != "html" or not pagename.startswith(CHAPTERS):
        return
    template = Template(Path(__file__).with_name("slides.html").read_text(encoding="utf-8"))
    settings = json.dumps(app.config.mathjax3_config or {})
    deck = template.substitute(title=context["title"], mathjax=settings, script=SCRIPT, body=context["body"])
    path = Path(app.outdir) / f"{pagename}.slides.html"
    path.parent.mkdir(parents=True, exist_ok=True)  # the page itself, which makes the folder, is written later
    path.write_text(deck, encoding="utf-8")
    context["header_buttons"].append({**BUTTON, "url": path.name})


def setup(app):
    """Register with Sphinx; the theme sets up its buttons before."""
    app.connect("builder-inited", copy_reveal)
    app.connect("html-page-context", write_deck, priority=502)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
