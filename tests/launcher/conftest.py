"""`simgpu run` inside this process, which takes a tenth of what a new one does."""

import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from simgpu.__main__ import main

PROGRAMS = Path(__file__).parent / "programs"
Ran = namedtuple("Ran", "code out err")


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    """A function that runs a program, a file in programs/ or its text, and returns exit code, output and errors."""

    def run(program, *arguments, options=(), command="run"):
        monkeypatch.setattr(sys, "argv", list(sys.argv))
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "__stdout__", sys.stdout)
        monkeypatch.setattr(sys, "__stderr__", sys.stderr)
        path = PROGRAMS / f"{program}.py"
        if "\n" in program:
            path = tmp_path / "program.py"
            path.write_text(program)
        capfd.readouterr()
        with torch.random.fork_rng(devices=[]):
            code = main([command, *map(str, options), str(path), *map(str, arguments)])
        return Ran(code, *capfd.readouterr())

    return run
