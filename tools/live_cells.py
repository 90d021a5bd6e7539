"""A Sphinx extension: a notebook's page holds what `_static/live.js` needs to run its cells, and says how to run them.

That is the code of all code cells, also of those that the page leaves out (`remove-cell`), and for each name that a
cell takes from an earlier one, which cell gave it last.
"""

import json
from pathlib import Path

from docutils import nodes
from needed import binds, parsed, reads

NOTE = """<p class="live-note">The code on this page can be edited and run in the page: get the book's files, run
<code>make serve</code> there, and open the address that it prints.</p>"""
CELLS = '<script type="application/json" id="live-cells">{}</script>'


def names(source):
    """Return (the names that a cell binds, those that it takes from elsewhere)."""
    try:
        statements = parsed(source)
    except SyntaxError:  # a cell that shows one
        return set(), set()
    return set().union(*map(binds, statements)), reads(statements)


def code_cells(notebook, shown):
    """Return the code cells as live.js reads them; `shown` has the indices, in the notebook, of those on the page."""
    found, givers = [], {}
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
        bound, used = names(source)
        alone = any(tag.startswith("exercise-") for tag in tags)  # an exercise runs without the cells before it
        needs = {} if alone else {name: givers[name] for name in sorted(used & givers.keys())}
        found.append(
            {
                "source": source,
                "shown": index in shown,
                "alone": alone,
                "needs": needs,
                "fails": "raises-exception" in tags,
            }
        )
        givers |= dict.fromkeys(bound, len(found) - 1)
    return found


def embed(app, pagename, templatename, context, doctree):
    """Put the cells at the end of a notebook's page, and the note under its title."""
    path = Path(app.env.doc2path(pagename)) if doctree else Path()
    if app.builder.format != "html" or path.suffix != ".ipynb":
        return
    shown = {node["cell_index"] for node in doctree.findall(nodes.container) if node.get("nb_element") == "cell_code"}
    cells = code_cells(json.loads(path.read_text(encoding="utf-8")), shown)
    data = json.dumps({"path": f"{pagename}.ipynb", "cells": cells}).replace("<", "\\u003c")
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{NOTE}", 1) + CELLS.format(data)


def setup(app):
    """Register with Sphinx; the slides are made from the body before this."""
    app.connect("html-page-context", embed, priority=503)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
