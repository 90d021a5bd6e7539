"""What every chapter's file must be like; that its outputs are still true is for nbval to say (`make test`)."""

import functools
import json
import re
from pathlib import Path

import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
PAGES = [ROOT / "index.ipynb", *CHAPTERS, *sorted((ROOT / "reference").glob("*.ipynb"))]
MACHINE = {
    "a path of some machine": re.compile(r"(?<![\w.~])/(?:home|root|Users|tmp|private|work|usr|opt)/\w|[A-Z]:\\"),
    "the address of an object": re.compile(r"\bat 0x[0-9a-f]+"),
    "a carriage return": re.compile(r"\r"),
    "a colour code": re.compile(r"\x1b"),
}
TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b")
TEXTS = ("text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml")

each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def tagged(cell, tag):
    return tag in cell.metadata.get("tags", [])


@functools.cache
def all_cells(path):
    return nbformat.read(path, as_version=4).cells


def code_cells(path):
    return [cell for cell in all_cells(path) if cell.cell_type == "code" and cell.source.strip()]


def prose(path):
    return "\n\n".join(cell.source for cell in all_cells(path) if cell.cell_type == "markdown")


def headings(path):
    """Return the chapter's headings as (level, text); what stands in a fence is not one."""
    text = re.sub(r"(?ms)^ *(`{3,}|~{3,}|:{3,}).*?^ *\1 *$", "", prose(path))
    return [(len(marks), title.strip()) for marks, title in re.findall(r"(?m)^(#{1,6}) +(.+)$", text)]


def texts(cell):
    """Return all that a cell's outputs show as text."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join([output.ename, output.evalue, *output.traceback])
        else:
            yield from (output.data[kind] for kind in TEXTS if kind in output.data)


@each_page
def test_file_is_valid_and_small(path):
    nb = json.loads(path.read_text(encoding="utf-8"))  # nbformat would repair the ids as it reads
    assert (nb["nbformat"], nb["nbformat_minor"]) == (4, 5)
    ids = [cell.get("id") for cell in nb["cells"]]
    assert None not in ids, "a cell has no id"
    assert len(set(ids)) == len(ids), "two cells have the same id"
    nbformat.validate(nb)  # after that: it would repair them as well
    assert "widgets" not in nb["metadata"], "the state of live widgets is stored; run make chapters"
    assert path.stat().st_size < 1.5e6, "over 1.5 MB: draw smaller or fewer figures"


@each_page
def test_every_cell_was_executed_in_order_and_failed_where_it_should(path):
    # nbval compares nothing in a cell without a count.
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1)), "run make chapters"
    for cell in code_cells(path):
        raised = any(output.output_type == "error" for output in cell.outputs)
        assert raised == tagged(cell, "raises-exception"), f"a stored error, or a missing one, in: {cell.source}"


@each_page
def test_measured_cells_assert_what_must_hold(path):
    cells = code_cells(path)
    for cell, behind in zip(cells, [*cells[1:], None]):
        if tagged(cell, "nbval-ignore-output"):
            guard = behind.source if behind and tagged(behind, "remove-cell") else ""  # the page leaves it out
            text = f"{cell.source}\n{guard}"
            assert re.search(r"(?m)^\s*assert\b", text), f"nothing checks this cell: {cell.source}"


@each_page
def test_nbval_checks_every_cell(path):
    for cell in code_cells(path):
        assert not tagged(cell, "nbval-skip"), f"nbval does not run this cell: {cell.source}"
        assert "NBVAL_" not in cell.source, f"use the cell's tags, which the book does not show: {cell.source}"
        assert not cell.source.rstrip().endswith(";"), f"for nbval, _ = ... silences the output of: {cell.source}"


@each_page
def test_outputs_show_nothing_of_the_machine_and_hold_no_live_widgets(path):
    for cell in code_cells(path):
        for text in texts(cell):
            for what, pattern in MACHINE.items():
                assert not pattern.search(text), f"{what} in the output of: {cell.source}"
            if not tagged(cell, "nbval-ignore-output"):
                assert not TIME.search(text), f"a time, which no other run will show, in the output of: {cell.source}"
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        assert not any("widget" in kind for kind in kinds), f"run make chapters: {cell.source}"


@each_chapter
def test_chapter_has_its_parts(path):
    found = headings(path)
    assert all_cells(path)[0].source.startswith("# "), "begins with its title"
    assert [level for level, _ in found].count(1) == 1, "has one title"
    titles = [title.lower() for level, title in found if level == 2]
    assert any(re.match(r"summary|what you (have )?learn", title) for title in titles), "has a summary"
    assert any(re.match(r"exercise", title) for title in titles), "has exercises"


@each_chapter
def test_chapter_cites_what_the_bibliography_has(path):
    keys = {key.strip() for role in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", prose(path)) for key in role.split(",")}
    known = set(re.findall(r"(?m)^@\w+\{([^,\s]+)", (ROOT / "references.bib").read_text(encoding="utf-8")))
    assert keys, "cites nothing"
    assert keys <= known


def test_contents_list_every_chapter_and_only_these():
    listed = set(re.findall(r"chapters/([\w-]+)", str(yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8")))))
    assert listed == {chapter.stem for chapter in CHAPTERS}
    found = set(re.findall(r"reference/([\w-]+)", (ROOT / "_toc.yml").read_text("utf-8")))
    assert found == {page.stem for page in (ROOT / "reference").iterdir() if page.suffix in (".md", ".ipynb")}
    pages = [page.read_text(encoding="utf-8") for page in ROOT.glob("*.md")]
    assert any("{bibliography}" in page for page in pages), "no page shows the bibliography"
