"""Notebooks made for running: plain Markdown alone, solutions folded, the book's outputs when they are executed."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import notebook_form
import pytest
import run_notebooks
from book_names import ROOT, Names
from nbclient import NotebookClient
from notebook_env import ENVIRONMENT

PAGES = run_notebooks.pages()
MARKS = re.compile(r"\{[\w:-]+\}`|:label:|^ *(`{3,}|:{3,})\{|^\([\w-]+\)=|\[\^|:::", re.MULTILINE)
MEASURED = "nbval-ignore-output"
SOME = ("chapters/allreduce",)  # executed in every run; the others are `long`


@pytest.fixture(scope="module")
def names():
    return Names()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("notebooks")
    run_notebooks.store(folder, {page: notebook_form.dumps(run_notebooks.make(page, names)) for page in PAGES})
    return folder


def read(folder, page):
    return nbformat.read(folder / f"{page}.ipynb", as_version=4)


@pytest.mark.parametrize("page", PAGES)
def test_text_is_plain_and_solutions_are_folded(folder, page):
    nb = read(folder, page)
    prose = [cell.source for cell in nb.cells if cell.cell_type == "markdown"]
    shown = "\n\n".join(re.sub(r"(?ms)^```(?!\{).*?^```$|`[^`\n]+`", "", source) for source in prose)
    assert not MARKS.search(shown), MARKS.search(shown)
    original = nbformat.read(ROOT / f"{page}.ipynb", as_version=4)
    solutions = [cell for cell in original.cells if any("solution" in tag for tag in run_notebooks.tags(cell))]
    visible = re.sub(r"(?s)<details>.*?</details>", "", "\n".join(cell.source for cell in nb.cells))
    folded = "\n".join(re.findall(r"(?s)<details>.*?</details>", "\n".join(prose)))
    assert "<details>" not in visible
    for cell in solutions:
        assert cell.source in folded
        assert cell.source not in visible
    starters = [
        cell for cell in nb.cells if any(tag.startswith("exercise-starter") for tag in run_notebooks.tags(cell))
    ]
    assert len(starters) == len(solutions)
    assert all(output.text.startswith("✗") for cell in starters for output in cell.outputs if "text" in output)


@pytest.mark.parametrize("page", ["index", "chapters/devices"])
def test_the_first_cell_installs_what_is_missing_and_goes_to_the_data(monkeypatch, tmp_path, names, page):
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/multi-gpu")
    monkeypatch.chdir(tmp_path)
    source = run_notebooks.make(page, names).cells[0].source
    commands, home = [], tmp_path / "book" / page
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    exec(source, {})  # d2lmini is installed here
    assert commands == []
    home.parent.mkdir(parents=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    exec(source, {})
    assert Path.cwd() == home.parent
    assert [command for command in commands if command[0] == "git"] == []  # the folder is there already
    assert commands[-1][1:4] == ["-m", "pip", "install"]
    shutil.rmtree(tmp_path / "book")
    monkeypatch.chdir(tmp_path)
    exec(source, {})
    assert "https://github.com/someone/multi-gpu" in commands[1]


def test_without_a_repository_the_first_cell_says_what_is_missing(monkeypatch, names):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    source = run_notebooks.make("index", names).cells[0].source
    exec(source, {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="make lab"):
        exec(source, {})


def test_what_a_reader_changed_stays_until_the_chapter_changes_and_then_beside_it(tmp_path):
    def stored():
        return {path.name: path.read_text() for path in (tmp_path / "chapters").glob("*.ipynb")}

    page, file = "chapters/a", tmp_path / "chapters" / "a.ipynb"
    run_notebooks.store(tmp_path, {page: "one"})
    run_notebooks.store(tmp_path, {page: "two"})
    assert stored() == {"a.ipynb": "two"}
    file.write_text("mine")
    run_notebooks.store(tmp_path, {page: "two"})
    assert stored() == {"a.ipynb": "mine"}
    run_notebooks.store(tmp_path, {page: "three"})
    file.write_text("mine again")
    run_notebooks.store(tmp_path, {page: "four"})
    assert stored() == {"a.ipynb": "four", "a-mine.ipynb": "mine", "a-mine2.ipynb": "mine again"}


@pytest.mark.browser  # it reads the built book
@pytest.mark.parametrize("page", PAGES)
def test_the_pages_download_is_the_notebook_made_for_running(page, folder):
    download = ROOT / "_build" / "html" / "_sources" / f"{page}.ipynb"
    assert download.read_text(encoding="utf-8") == (folder / f"{page}.ipynb").read_text(encoding="utf-8")


def outputs_of(cell):
    """Return what a cell put out as (kind, content), without pictures of dots and counts of execution."""
    tidied = notebook_form.tidy_outputs(cell.outputs)
    return [(o.get("name"), o.get("ename"), o.get("text"), o.get("data", {}).get("text/plain")) for o in tidied]


@pytest.mark.parametrize("page", [p if p in SOME else pytest.param(p, marks=pytest.mark.long) for p in PAGES])
def test_it_runs_from_top_to_bottom_and_puts_out_what_the_book_shows(folder, page):
    stored, nb = read(folder, page), read(folder, page)
    place = {"metadata": {"path": str((folder / page).parent)}}
    client = NotebookClient(nb, timeout=300, kernel_name="python3", resources=place)
    client.execute(env={**os.environ, **ENVIRONMENT})
    for before, after in zip(stored.cells, nb.cells):
        if after.cell_type == "code" and MEASURED not in run_notebooks.tags(after):
            assert outputs_of(after) == outputs_of(before), after.source
