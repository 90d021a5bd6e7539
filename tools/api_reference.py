"""A Sphinx extension: the directive `package-api` writes a reference of the package from its docstrings.

Docstrings here are plain text: paragraphs, names between backticks, indented drawings, examples after ``>>>``. They are
read as that.
"""

import importlib
import inspect
import re
import textwrap

from docutils import nodes
from docutils.parsers.rst import Directive

# The root first: what it offers is described there, and not again in the rooms.
ROOMS = (
    *("d2lmini", "d2lmini.measuring", "d2lmini.collectives", "d2lmini.data_parallel", "d2lmini.distributed"),
    *("d2lmini.parallel", "d2lmini.trainer", "d2lmini.models", "d2lmini.data", "d2lmini.reuse", "d2lmini.figures"),
    *("simgpu", "simgpu.testing", "simgpu.hardware"),
)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def blocks(docstring):
    """Return a docstring as nodes: a paragraph, or a literal block for an example and where all lines are indented.

    It is not cleaned here: of a module's docstring that is a line and a drawing, the drawing would lose its indent.
    """
    found = []
    for text in re.split(r"\n\s*\n", (docstring or "").strip()):
        if text and all(line.startswith("  ") for line in text.splitlines()):
            drawing = textwrap.dedent(text)
            found.append(nodes.literal_block(drawing, drawing, language="none"))
        elif text.startswith(">>> "):
            found.append(nodes.literal_block(text, text, language="pycon"))
        elif text:
            found.append(nodes.paragraph("", "", *inline(" ".join(text.split()))))
    return found


def inline(text):
    """Return text as nodes, with what stands between backticks as code."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    return [nodes.literal("", part.strip("`")) if part.startswith("`") else nodes.Text(part) for part in parts if part]


def signature(name, thing):
    """Return how a name is called, with defaults and without types, or the name alone where it is not called."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    plain = [one.replace(annotation=one.empty) for one in found.parameters.values() if one.name != "self"]
    return name + ADDRESS.sub("", str(found.replace(parameters=plain, return_annotation=found.empty)))


def entry(place, name, thing):
    """Return a definition list's item for one public name; a class brings its public methods along."""
    described = [nodes.term("", "", nodes.literal("", signature(name, thing)), ids=[f"{place}.{name}"])]
    if not (inspect.isclass(thing) or callable(thing)):
        keys = [f"`{key}`" for key in thing] if isinstance(thing, dict) else []
        what = f"A table of {len(thing)}: {', '.join(keys)}." if keys else f"A {type(thing).__name__}."
        return nodes.definition_list_item("", *described, nodes.definition("", *blocks(what)))
    body = nodes.definition("", *blocks(inspect.getdoc(thing)))
    own = vars(thing) if inspect.isclass(thing) else {}
    methods = [key for key, value in own.items() if not key.startswith("_") and inspect.isfunction(value)]
    if methods:
        body += nodes.definition_list("", *(entry(f"{place}.{name}", key, own[key]) for key in methods))
    return nodes.definition_list_item("", *described, body)


def room(place, known):
    """Return a section about one room: its docstring, then its public names; those in `known` are only named."""
    module = importlib.import_module(place)
    public = {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}
    new = {name: thing for name, thing in public.items() if id(thing) not in known}
    title = nodes.title("", "", nodes.literal("", place))
    section = nodes.section("", title, *blocks(module.__doc__), ids=[place], names=[place])
    if len(new) < len(public):
        names = ", ".join(f"`{name}`" for name in public if name not in new)
        section += blocks(f"Described above, since the root has them too: {names}.")
    section += nodes.definition_list("", *(entry(place, name, thing) for name, thing in new.items()), classes=["api"])
    known.update((id(thing), thing) for thing in new.values())
    return section


class PackageApi(Directive):
    """One section for each room of the package."""

    def run(self):
        """Return the sections."""
        known = {}
        return [room(place, known) for place in ROOMS]


def setup(app):
    """Register with Sphinx."""
    app.add_directive("package-api", PackageApi)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
