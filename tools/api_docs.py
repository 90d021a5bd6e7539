"""A Sphinx extension: the reference of the packages, by autodoc, from docstrings that are nearly plain text.

Docstrings hold paragraphs, names between single backticks, drawings, examples after ``>>>``, and sections such as
``Args:``, which napoleon reads. What reStructuredText would take for markup is made plain before.
"""

import re
import sys
import textwrap

from docutils import nodes

SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Source|Yields):$")
DRAWN = re.compile(r"[│├└┌─▶▼]|\S {3,}\S")  # lines, or columns
CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)


def prepare(app, what, name, thing, options, lines):
    """Rewrite the lines of a docstring, in place, as reStructuredText: autodoc asks for it."""
    blocks = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines[:] = [*"\n\n".join(map(restructured, blocks)).split("\n"), ""]


def restructured(block):
    """Return one paragraph, section, example or drawing as reStructuredText."""
    first = block.strip().partition("\n")[0]
    if block.startswith(">>> "):
        return block
    if not SECTION.match(first) and (block.startswith(" ") or DRAWN.search(block)):
        return "::\n\n" + textwrap.indent(textwrap.dedent(block), "    ")
    return escaped(block)


def escaped(text):
    """Return text in which only what stands between backticks is markup: code."""
    found, at = [], 0
    for code in CODE.finditer(text):
        before, after = text[at : code.start()], text[code.end() : code.end() + 1]
        glue = "\\ " if before[-1:].isalnum() else "", "\\ " if after.isalnum() else ""
        found += [_plain(before), glue[0], f"``{code[0].strip('`')}``", glue[1]]
        at = code.end()
    return "".join([*found, _plain(text[at:])])


def _plain(text):
    return re.sub(r"[\\*|]|_(?!\w)", r"\\\g<0>", text)


def inline(text):
    """Return text as docutils nodes, with what stands between backticks as code."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    return [nodes.literal("", part.strip("`")) if part.startswith("`") else nodes.Text(part) for part in parts if part]


def elsewhere(app, what, name, thing, skip, options):
    """Return True for a name of a room that is described on another page: the package's own, or the other package's."""
    room = app.env.temp_data.get("autodoc:module") or ""
    package, _, inside = room.partition(".")
    if what != "module" or not inside:
        return None
    of_package = name in sys.modules[package].__all__ and getattr(sys.modules[package], name) is thing
    of_other = getattr(thing, "__module__", package).partition(".")[0] in {"d2lmini", "simgpu"} - {package}
    return True if of_package or of_other else None


# Sphinx 7.4's search looks for an object by a selector in which the dots of its name stand for classes.
SEARCH = """addEventListener("DOMContentLoaded", () => {
  const plain = Search.htmlToText;
  Search.htmlToText = (html, anchor) => plain(html, anchor && "#" + CSS.escape(anchor.slice(1)));
});"""


def search_finds_objects(app, page, template, context, doctree):
    """Let the search page show what a found object's description says."""
    if page == "search":
        app.add_js_file(None, body=SEARCH)


def setup(app):
    """Register with Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("autodoc-skip-member", elsewhere)
    app.connect("html-page-context", search_finds_objects)
    app.connect("autodoc-process-docstring", prepare, priority=400)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
