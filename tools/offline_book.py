"""A Sphinx extension: the built book holds all that its pages load, so it works with no network.

The one thing Sphinx would fetch is MathJax; it is copied here out of the package `sphinx-mathjax-offline`, which is
not loaded as an extension (it would choose another component of MathJax, one that does not read MathML).
"""

import shutil
from importlib.metadata import distribution
from pathlib import Path

from sphinx.errors import ExtensionError

PACKAGE = "sphinx-mathjax-offline"
SCRIPT = "mathjax/tex-mml-chtml.js"


def mathjax_folder():
    """Return the folder of MathJax's files in the installed package; raise ExtensionError if it is not there."""
    folder = Path(distribution(PACKAGE).locate_file(f"{PACKAGE}/static/mathjax"))
    if not (folder / Path(SCRIPT).name).is_file():
        raise ExtensionError(f"{PACKAGE} has no {Path(SCRIPT).name} in {folder}; install the pinned requirements")
    return folder


def copy_mathjax(app):
    """Put MathJax below `_static` where a page looks for it, in every build, unless it is there in full."""
    if app.builder.format != "html":
        return
    source, target = mathjax_folder(), Path(app.outdir) / "_static" / "mathjax"
    present = {path.relative_to(target) for path in target.rglob("*")} if target.is_dir() else set()
    if {path.relative_to(source) for path in source.rglob("*")} - present:
        shutil.copytree(source, target, dirs_exist_ok=True)


def setup(app):
    """Register with Sphinx: MathJax is copied before the pages are written, which link to it by its checksum."""
    app.connect("config-inited", lambda _, config: setattr(config, "mathjax_path", SCRIPT))
    app.connect("builder-inited", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
