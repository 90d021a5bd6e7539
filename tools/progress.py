"""A Sphinx extension: `_static/items.js` says what each page has to answer and to solve, for the book's progress marks.

A question is an output of `ask` or `predict`, an exercise a cell that is tagged as its starter: only these can be
checked in the page.
"""

import json
import re
from pathlib import Path

import nbformat
import run_notebooks
from book_names import ROOT

QUESTION = re.compile(r'class="d2l-ask[^"]*" role="group" aria-labelledby="(ask-\w+)"')
STARTER = re.compile(r"(exercise)-starter-(.+)")


def items(path):
    """Return the names of a notebook's questions and exercises with a check, each once, in their order."""
    found = {}
    for cell in nbformat.read(path, as_version=4).cells:
        starters = [match for tag in run_notebooks.tags(cell) if (match := STARTER.fullmatch(tag))]
        found.update({f"{match[1]}-{match[2]}": None for match in starters})
        if "remove-cell" not in run_notebooks.tags(cell):
            html = "".join(output.get("data", {}).get("text/html", "") for output in cell.get("outputs", []))
            found.update(dict.fromkeys(QUESTION.findall(html)))
    return list(found)


def write(app):
    """Write the names of all pages' items where the pages load them from."""
    if app.builder.format != "html":
        return
    found = {page: names for page in run_notebooks.pages() if (names := items(ROOT / f"{page}.ipynb"))}
    target = Path(app.outdir) / "_static" / "items.js"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"const bookItems = {json.dumps(found)};\n", encoding="utf-8")


def setup(app):
    """Register with Sphinx: the file is there before the pages are written, which link to it by its checksum."""
    app.connect("builder-inited", write)
    app.add_js_file("items.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
