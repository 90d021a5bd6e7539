"""A Sphinx extension: the directive `package-map` draws the packages' rooms from the table of floors and docstrings."""

import ast
from pathlib import Path

from api_docs import inline
from docutils import nodes
from docutils.parsers.rst import Directive

ROOT = Path(__file__).resolve().parent.parent
# A room imports only from floors below its own; tests/book/test_structure.py holds them to it.
FLOORS = {
    "simgpu": [
        {"hardware"},
        {"accounting"},
        {"device"},
        {"torch_glue"},
        {"ranks"},
        {"control"},
        {"counting"},
        {"testing", "pytest_plugin", "launcher"},
    ],
    "d2lmini": [
        {"host", "models", "reuse", "wording"},
        {"devices"},
        {"timing"},
        {"measuring", "collectives", "data"},
        {"data_parallel", "distributed", "parallel"},
        {"trainer"},
        {"figures", "checks", "lessons", "train"},
    ],
}


def purpose(package, room):
    """Return the first paragraph of a room's docstring."""
    folder = ROOT / package
    path = folder / room / "__init__.py" if (folder / room).is_dir() else folder / f"{room}.py"
    return " ".join(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).split("\n\n")[0].split())


def row(*cells):
    """Return a row of a table, with what stands between backticks as code."""
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *inline(cell))) for cell in cells))


class PackageMap(Directive):
    """A table of the rooms, the highest floor first."""

    def run(self):
        """Return the table."""
        rooms = [
            (package, number, room)
            for package in ("d2lmini", "simgpu")
            for number, floor in reversed(list(enumerate(FLOORS[package])))
            for room in sorted(floor)
        ]
        lines = [row(f"`{package}.{room}`", str(number), purpose(package, room)) for package, number, room in rooms]
        head = row("room", "floor", "what it is for")
        columns = [nodes.colspec(colwidth=width) for width in (5, 2, 11)]
        return [nodes.table("", nodes.tgroup("", *columns, nodes.thead("", head), nodes.tbody("", *lines), cols=3))]


def setup(app):
    """Register with Sphinx."""
    app.add_directive("package-map", PackageMap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
