"""The tools that store notebooks and make the book stand alone."""

import copy
import csv
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import api_docs
import glossary_links
import launch
import nbformat
import notebook_env
import notebook_form
import offline_book
import published_figures
import pytest
import shared_frames
from docutils import nodes
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import chapters
from d2lmini.figures import tables

CLOCK = "import time\nstart = time.perf_counter_ns()\nassert start > 0\nprint(start)"


def cell(source, *tags):
    return new_code_cell(source, metadata={"tags": list(tags)})


def save(path, *cells):
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


def outputs(path):
    return [c.outputs for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


def printed(text, name="stdout"):
    return new_output("stream", name=name, text=text)


# --- executing ---


@pytest.mark.process
def test_storing_twice_changes_nothing_and_a_measured_output_stays(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    path = save(
        tmp_path / "small.ipynb",
        new_markdown_cell("# One"),
        cell("import os\nos.environ['OMP_NUM_THREADS']"),
        cell(CLOCK, "nbval-ignore-output"),
        cell("1 / 0", "raises-exception"),
        cell(" "),
        cell("print(2)"),
    )
    path.chmod(0o640)
    assert chapters.main([str(path)]) == 0
    first = path.read_bytes()
    assert outputs(path)[0][0].data["text/plain"] == "'1'"  # the fixed environment reached the kernel …
    assert os.environ["OMP_NUM_THREADS"] == "3"  # … and nobody else
    assert [c.execution_count for c in nbformat.read(path, 4).cells if c.cell_type == "code"] == [1, 2, 3, None, 4]
    assert chapters.main(["--check", str(path)]) == 0
    assert chapters.main(["--check", "--fresh", str(path)]) == 1
    assert path.read_bytes() == first
    assert chapters.main(["--fresh", str(path)]) == 0
    assert outputs(path)[1] != nbformat.reads(first.decode(), 4).cells[2].outputs
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["small.ipynb"]
    said = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()]
    assert said == ["stored", "unchanged", "would change", "stored"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("broken", "keyword"),
    [
        (cell("raise ValueError('first\\nlast')"), "ValueError: first last"),
        (cell("1", "raises-exception"), "raised nothing"),
        (cell("import os\nos._exit(1)"), "died"),
        (cell("import time\ntime.sleep(60)"), "5 s"),
    ],
)
def test_a_cell_that_fails_is_named_and_nothing_is_written(tmp_path, capsys, broken, keyword):
    path = save(tmp_path / "bad.ipynb", new_markdown_cell("# Bad"), cell("1"), broken)
    before = path.read_bytes()
    timeout = "5" if "sleep" in broken.source else "200"
    assert chapters.main(["--timeout", timeout, str(path)]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("bad.ipynb, cell 3 of 3: ")
    assert keyword in error
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"cells": [', '{"nbformat": 4, "nbformat_minor": 5, "cells": 1}'])
def test_a_file_that_is_no_notebook_gives_one_line(tmp_path, capsys, text):
    path = tmp_path / "none.ipynb"
    path.write_text(text)
    assert chapters.main([str(path), str(tmp_path / "missing.ipynb")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert path.read_text() == text


# --- what is kept of a measurement ---


def executed(*pairs):
    """Return a notebook in its stored form, whose code cells are (source, output text) and measure from the 2nd on."""
    cells = [cell(source, *(["nbval-ignore-output"] if i else [])) for i, (source, _) in enumerate(pairs)]
    for count, (code, (_, text)) in enumerate(zip(cells, pairs, strict=True), start=1):
        code.outputs, code.execution_count = [printed(text)], count
    return notebook_form.tidy(new_notebook(cells=cells))


def kept(old, new):
    chapters.keep_measured(old, new)
    return [c.outputs[0].text for c in new.cells]


def test_a_measurement_is_kept_for_the_same_code_of_the_same_kind():
    old, new = executed(("a", "x"), ("b", "1 s"), ("c", "2 s")), executed(("a", "y"), ("b", "3 s"), ("c", "4 s"))
    assert kept(old, copy.deepcopy(new)) == ["y", "1 s", "2 s"]
    new.cells[1].outputs[0].name = "stderr"
    assert kept(old, new) == ["y", "3 s", "2 s"]


def test_a_measurement_goes_when_code_before_it_was_edited_added_or_removed():
    edited = executed(("a", "x"), ("B", "1 s"), ("c", "2 s"))
    edited.cells[1].source = "b"  # its id is still that of the text it had
    added = executed(("a", "x"), ("c", "2 s"))
    added.cells.insert(1, cell("b", "nbval-ignore-output"))
    removed = executed(("a", "x"), ("gone", ""), ("b", "1 s"), ("c", "2 s"))
    del removed.cells[1]
    for old in (edited, added, removed):
        assert kept(old, executed(("a", "x"), ("b", "3 s"), ("c", "4 s"))) == ["x", "3 s", "4 s"]


# --- the stored form ---


def test_streams_are_merged_between_other_outputs_and_stdout_comes_first():
    figure = new_output("display_data", {"text/plain": "figure"})
    tidied = notebook_form.tidy_outputs([printed("a"), printed("e", "stderr"), printed("b"), figure, printed("c")])
    assert [o.get("text") for o in tidied] == ["ab", "e", None, "c"]
    assert notebook_form.tidy_outputs(tidied) == tidied


def test_live_widgets_go_and_their_still_face_stays():
    view = {notebook_form.WIDGET_VIEW: {"model_id": "1"}, "text/plain": "Slider()"}
    alone = new_output("display_data", view)
    both = new_output("execute_result", {**view, "text/html": "<p>"}, execution_count=1)
    tidied = notebook_form.tidy_outputs([alone, both])
    assert [sorted(o.data) for o in tidied] == [["text/html", "text/plain"]]


def test_a_traceback_keeps_the_cell_and_the_message_only():
    parts = ["\x1b[31mError\x1b[39m", "\x1b[36mCell\x1b[39m In[1], line 1", "\x1b[36mFile \x1b[39m/a.py:1", "Error: x"]
    assert notebook_form.tidy_traceback(parts) == ["Error", "Cell In[1], line 1", "Error: x"]


def test_the_stored_form_is_valid_and_the_same_again():
    nb = new_notebook(cells=[cell("x"), cell("x"), new_markdown_cell("x"), cell("")], metadata={"widgets": {"a": 1}})
    nb.cells[0].metadata.update(execution={"a": 1}, scrolled=True, mystnb={"image": {"alt": "a"}})
    text = notebook_form.dumps(notebook_form.tidy(nb))
    stored = nbformat.reads(text, as_version=4)
    assert len({c.id for c in stored.cells}) == 4
    assert set(stored.metadata) == {"kernelspec", "language_info"}
    assert set(stored.cells[0].metadata) == {"tags", "mystnb"}
    assert notebook_form.dumps(notebook_form.tidy(stored)) == text


# --- the others ---


@pytest.mark.process
def test_a_command_gets_the_notebooks_environment():
    show = [sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"]
    done = subprocess.run([sys.executable, notebook_env.__file__, *show], capture_output=True, text=True, check=True)
    assert done.stdout == notebook_env.ENVIRONMENT["OMP_NUM_THREADS"] + "\n"


def test_mathjax_is_completed_in_a_folder_that_lacks_a_file(tmp_path):
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    offline_book.copy_mathjax(app)
    script = tmp_path / "_static" / offline_book.SCRIPT
    fonts = sorted(script.parent.rglob("*.woff"))
    assert (script.is_file(), len(fonts) > 10) == (True, True)
    fonts[0].unlink()
    offline_book.copy_mathjax(app)
    assert sorted(script.parent.rglob("*.woff")) == fonts


DOCSTRING = """\
Return `x`s, a ``y`` of *all*, no_.

    a ──▶ b
      │

Raises:
    ValueError: For less.

>>> f(`1`)
"""
RESTRUCTURED = r"""Return ``x``\ s, a ``y`` of \*all\*, no\_.

::

    a ──▶ b
      │

Raises:
    ValueError: For less.

>>> f(`1`)
"""


def test_docstrings_become_restructured_text_whose_drawings_and_examples_stay():
    lines = DOCSTRING.splitlines()
    api_docs.prepare(None, "function", "f", None, None, lines)
    assert "\n".join(lines) == RESTRUCTURED


def test_first_uses_of_terms_become_links():
    left = {
        "rank": ("term-rank", "A number."),
        "ring": ("t-ring", "A circle."),
        "ring sum": ("t-sum", "Added."),
        "all-reduce": ("t-a", "A sum."),
        "allreduce": ("t-b", "A sum."),
    }
    parts = list(
        glossary_links.linked(
            "String: Ranks, a rank's ring sum, an all-reduce and allreduce",
            glossary_links.pattern(left),
            left,
            "g.html",
        )
    )
    assert "".join(part.astext() for part in parts) == "String: Ranks, a rank's ring sum, an all-reduce and allreduce"
    links = [(part.astext(), part["refuri"]) for part in parts if isinstance(part, nodes.reference)]
    assert links == [("Ranks", "g.html#term-rank"), ("ring sum", "g.html#t-sum"), ("all-reduce", "g.html#t-a")]
    assert set(left) == {"ring"}


def test_no_link_leads_from_a_part_of_a_longer_term_or_from_another_word():
    left = {"ring sum": ("t-sum", "a sum"), "ring": ("t-ring", "a circle"), "zero": ("term-ZeRO", "a way to shard")}
    names = glossary_links.pattern(left)
    parts = list(glossary_links.linked("a ring sum, zero ring sums, ZeRO", names, left, "g.html"))
    assert [part.astext() for part in parts if isinstance(part, nodes.reference)] == ["ring sum", "ZeRO"]


def test_only_paragraphs_are_linked():
    paragraph = nodes.paragraph("", "", nodes.Text("a rank, "), nodes.literal("", "rank"))
    assert [glossary_links.in_prose(text) for text in paragraph.findall(nodes.Text)] == [True, False]
    assert not glossary_links.in_prose(next(nodes.title("", "rank").findall(nodes.Text)))


# --- the page of published figures ---


def test_the_summary_counts_the_errors_that_a_table_states():
    html = tables.table(["run", "error", "of all", "error"], [("a", "+7%", "50%", "−12%"), ("b", "–", "3%", "0%")])
    assert published_figures.errors(html._repr_html_()) == [7, 12, 0]


def test_every_published_row_stands_beside_the_book_s_own():
    stored = [html for path in published_figures.pages() for _, html in published_figures.comparisons(path)]
    found = {word for html in stored for text in published_figures.CELL.findall(html) for word in text.split()}
    for path in sorted((published_figures.ROOT / "chapters" / "data").glob("*.csv")):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        for row in csv.DictReader(lines):
            column = next((name for name in ("value", "latency_ms", "us") if name in row), None)
            given = row.get("metric", "").startswith(("busbw", "GB_s ("))  # a prediction starts from it
            if column and not given:
                value = float(row[column]) * (1000 if column == "latency_ms" else 1)
                shown = {f"{value:,.{digits}f}" for digits in (0, 1, 2)}
                if row.get("metric") == "sequences_per_s" and "accumulate" in row:  # or the seconds of one update
                    update = int(row["count"]) * int(row["batch"]) * int(row["accumulate"])
                    shown.add(f"{update / value:.2f}")  # with fewer digits it would be any small number
                assert shown & found, f"{path.name}: {row}"
        assert sum(published_figures.sources(path).values()) == len(lines) - 1


@pytest.mark.parametrize(
    ("headings", "source", "answer"),
    [
        (["run", "published", "simulated"], "", True),
        (["buffer", "NCCL, measured"], "", True),
        (["layer", "lecture", "ours"], "", True),
        (["A100", "model", "error"], "rows = published", True),
        (["A100", "model", "error"], "", False),
        (["as published", "ms"], "", False),
        (["rows", "this CPU"], "", False),
    ],
)
def test_a_table_that_compares_is_known_by_its_headings(headings, source, answer):
    html = tables.table(headings, [["1"] * len(headings)])._repr_html_()
    assert published_figures.compares(html, source) == answer


# --- the frames of explorable figures ---


def test_hidden_frames_share_what_they_repeat_and_are_the_same_when_put_together():
    frame = '<div{}><img alt="a" src="data:image/svg+xml,%3Csvg%3E%3Cpath d=\'M{}\'/%3E%7B0%7D%3C/svg%3E"></div>'
    body = "".join(frame.format(" hidden" * (number != 1), number % 3) for number in range(6))
    page, script = shared_frames.shared(body).split("<script>")
    parts = json.loads(re.search(r"const parts = (.*);", script)[1])
    assert re.sub(r"{(\d+)}", lambda number: parts[int(number[1])], page).replace("data-frame", "src") == body
    assert page.count("%3Csvg") == page.count("%3C/svg") == 1  # in the frame that is shown, without a script too
    assert page.count("%3Cpath") == 2  # there, and in the only hidden frame that has such a path
    assert shared_frames.shared(frame.format("", 1)) == frame.format("", 1)


# --- buttons ---


@pytest.mark.parametrize(("address", "offered"), [("", False), ("https://github.com/someone/book", True)])
def test_a_notebook_is_offered_to_run_where_the_repository_has_an_address(monkeypatch, address, offered):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    config = SimpleNamespace(html_theme_options={"repository_url": address, "launch_buttons": {}})
    launch.offer(None, config)
    assert bool(config.html_theme_options["launch_buttons"]) == offered


def test_the_workflow_that_builds_the_book_gives_the_address(monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/book")
    config = SimpleNamespace(html_theme_options={"repository_url": "", "launch_buttons": {}})
    launch.offer(None, config)
    assert config.html_theme_options["repository_url"] == "https://github.com/someone/book"
