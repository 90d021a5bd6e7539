"""Every chapter's page under `make serve`: all its cells run, and each exercise is checked where it stands."""

import json
import re

import pytest
import run_notebooks
from book_names import ROOT
from live_page import LivePage

pytestmark = [pytest.mark.browser, pytest.mark.process]
ORDINARY = "chapters/allreduce"  # the others take minutes: pytest -m long
PAGES = [name if name == ORDINARY else pytest.param(name, marks=pytest.mark.long) for name in run_notebooks.pages()]
STARTER = re.compile(r"exercise-starter-(.+)")
CHAPTER_MS = 600_000


@pytest.fixture(scope="module", params=PAGES)
def chapter(request):
    return request.param


@pytest.fixture(scope="module")
def live(chapter, browser, served):
    """The chapter's page, for all tests of it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield LivePage(context, served, f"{chapter}.html")
    context.close()


@pytest.fixture(scope="module")
def cells(chapter):
    """The chapter's code cells that its page shows."""
    path = ROOT / f"{chapter}.ipynb"
    found = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    return [cell for cell in found if "remove-cell" not in tags(cell)]


def tags(cell):
    return cell["metadata"].get("tags", [])


def texts(page):
    """What each cell shows as text: what is printed, and tables; without spaces, which may be made not to break."""
    cells = page.locator("article .cell").evaluate_all("""cells => cells.map(cell =>
        [...cell.querySelectorAll(".cell_output :is(.stream pre, .text_plain pre, table)")].map(e => e.textContent))""")
    return [["".join(text.split()).replace("\u2060", "") for text in cell] for cell in cells]


def test_each_exercise_is_checked_in_the_page(live, cells):
    sources = {tag: "".join(cell["source"]) for cell in cells for tag in tags(cell)}
    names = [match[1] for match in map(STARTER.fullmatch, sources) if match]
    live.page.evaluate("document.querySelectorAll('button.toggle-button-hidden').forEach(button => button.click())")
    for name in names:
        starter = live.cell(f".tag_exercise-starter-{name}")
        state, text = live.run(starter)
        assert (state, text[0]) == ("ok", "✗"), f"{name}: {text}"
        state, text = live.run(starter, sources[f"exercise-solution-{name}"])
        assert (state, text[0]) == ("ok", "✓"), f"{name}: {text}"
        live.press("reset", starter)


def test_all_cells_run_and_give_what_the_book_has_stored(live, cells):
    stored = texts(live.page)
    live.press("restart")
    live.page.wait_for_selector("[data-kernel=idle]")
    live.press("run-all")
    live.page.wait_for_function(
        """() => [...document.querySelectorAll("article .cell")].every(cell =>
        !["queued", "running"].includes(cell.dataset.state)) && document.querySelector("[data-kernel=idle]")""",
        timeout=CHAPTER_MS,
    )
    states = live.page.locator("article .cell").evaluate_all("cells => cells.map(cell => cell.dataset.state)")
    failed = live.page.locator(".cell[data-state=error] .cell_output").all_inner_texts()
    assert set(states) == {"ok"}, failed
    found = texts(live.page)
    assert len(found) == len(cells)
    same = [not {"nbval-ignore-output", "raises-exception"} & set(tags(cell)) for cell in cells]
    assert [text for text, compared in zip(found, same) if compared] == [
        text for text, compared in zip(stored, same) if compared
    ]
    assert live.faults == []
