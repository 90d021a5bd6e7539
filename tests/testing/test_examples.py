"""The examples in docstrings give what they show, after the imports of the reference page, and leave nothing."""

import ast
import doctest
import re
from pathlib import Path

import pytest

import simgpu

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = re.search(r"```python\n(.*?)```", (ROOT / "reference" / "api.md").read_text(encoding="utf-8"), re.DOTALL)[1]
KINDS = ast.Module, ast.ClassDef, ast.FunctionDef


def examples():
    """Yield the docstrings that have examples, named as their files and functions."""
    for path in sorted([*(ROOT / "d2lmini").rglob("*.py"), *(ROOT / "simgpu").rglob("*.py")]):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if ">>> " in source else ():
            text = ast.get_docstring(node) if isinstance(node, KINDS) else None
            if text and ">>> " in text:
                yield pytest.param(text, id=f"{path.stem}.{getattr(node, 'name', '')}")


@pytest.fixture
def names(monkeypatch):
    """Return what an example may name; afterwards no tensor of it may be left on simulated GPUs."""
    monkeypatch.setenv("D2LMINI_DEVICES", "sim")
    names = {}
    exec(IMPORTS, names)
    yield names
    names.clear()
    simgpu.disable()


@pytest.mark.parametrize("text", list(examples()))
def test_an_example_gives_what_it_shows(names, text):
    runner, found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), []
    runner.run(doctest.DocTestParser().get_doctest(text, names, "the docstring", None, 0), out=found.append)
    assert not found, "".join(found)
