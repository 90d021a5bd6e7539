"""A Sphinx extension: no two elements of a page have the same id.

`sphinx_exercise` gives the body of every exercise and of every solution one and the same id, which nothing links to.
"""

from docutils import nodes

REPEATED = {"exercise-content", "solution-content"}


def remove_repeated(app, doctree, docname):
    """Take those ids off, as each page is written."""
    for section in doctree.findall(nodes.section):
        section["ids"] = [name for name in section["ids"] if name not in REPEATED]


def setup(app):
    """Register with Sphinx."""
    app.connect("doctree-resolved", remove_repeated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
