"""The pages of `make serve` in a browser: cells are edited and run where they stand, and nothing written is lost."""

import os
import re
import signal
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from live_page import PATIENCE_MS, LivePage, kernels

pytestmark = [pytest.mark.browser, pytest.mark.process]
CHAPTER = "chapters/data-parallel.html"
STARTER = ".tag_exercise-starter-first-gpu-bytes"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

SCRIPT = "<b>a</b><script>document.currentScript.previousSibling.append(1 + 1)</script>"
OUTPUTS = {  # what is run, which element shows what comes, its text
    "carriage return": ("print('1 of 9\\r10 of 9\\rab', end='')", ".stream pre", "ab of 9"),
    "stderr": ("import sys\nprint(1)\nprint(2, file=sys.stderr)", ".stderr pre", "2"),
    "script": (f"from IPython.display import HTML\nHTML('{SCRIPT}')", ".text_html b", "a2"),
    "clear": (
        "from IPython.display import clear_output\nfor i in range(3):\n    clear_output(wait=True)\n    print(i)",
        "pre",
        "2",
    ),
    "update": (
        "from IPython.display import display\nplace = display('old', display_id=True)\nplace.update('new')",
        "pre",
        "'new'",
    ),
    "result": ("1 + 1", ".text_plain pre", "2"),
    "help": ("print?", ".text_plain pre", "Prints the values to a stream"),
    "Markdown": ("from IPython.display import Markdown\nMarkdown('**a**')", ".text_markdown pre", "**a**"),
    "more than is shown": ("print('a\\n' * 200_000)", ".stream pre", "what came before this is left out"),
    "error": ("raise ValueError('no')", ".traceback .ansi-red >> nth=-1", "ValueError"),
    "formula": ("from IPython.display import Math\nMath('x^2')", ".text_latex mjx-container", ""),
}


@pytest.fixture(scope="module")
def context(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


@pytest.fixture(scope="module")
def live(context, served):
    """One page with its kernel, for the tests that leave it as it was."""
    return LivePage(context, served, CHAPTER)


def test_on_a_plain_host_the_page_has_no_buttons_and_one_line_that_says_how(visit):
    visit.open(CHAPTER)
    assert visit.page.locator("[data-editor], .live-tools, .live-bar, [data-live]").count() == 0
    (note,) = visit.page.locator(".live-note").all_inner_texts()
    assert "make serve" in note
    assert visit.faults == []


@pytest.fixture
def cell(live):
    """The starter of an exercise, as the book has it, and its kernel idle."""
    cell = live.cell(STARTER)
    yield cell
    live.press("reset", cell)


def until(done, what, seconds=PATIENCE_MS / 1000):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.1)


def test_every_cell_and_the_page_have_their_buttons_and_states(live):
    cells = live.page.locator("article .cell:has(.cell_input)")
    assert cells.count() > 10
    for part in ("run", "run-above", "reset"):
        assert cells.locator(f"[data-action={part}]").count() == cells.count()
    assert cells.locator("[data-editor]").count() == cells.count()
    assert live.page.locator("article .cell:not([data-state=idle])").count() == 0
    for part in ("run-all", "interrupt", "restart"):
        assert live.page.locator(f"[data-action={part}]").count() == 1
    assert live.page.locator(".live-note").count() == 0


def test_an_edited_cell_runs_survives_a_reload_and_is_reset(live, cell):
    stored, source = cell.locator(".cell_output").inner_text(), cell.locator("[data-editor]").inner_text()
    code = "for i in range(2):\n    print(i)\n\nprint('3 < 4 ✓')"
    assert live.run(cell, code) == ("ok", "0\n1\n3 < 4 ✓\n")
    live.page.reload()
    live.page.wait_for_selector("body[data-live=ready]")
    assert cell.locator("[data-editor]").inner_text() == code
    assert cell.locator(".cell_output").inner_text() == stored
    assert live.run(cell)[1] == "0\n1\n3 < 4 ✓\n"
    live.press("reset", cell)
    assert cell.locator("[data-editor]").inner_text() == source
    assert cell.locator("[data-editor] .kn").count() > 0, "the code has lost its colours"
    assert (cell.locator(".cell_output").inner_text(), cell.get_attribute("data-state")) == (stored, "idle")
    live.press("undo-reset", cell)
    assert cell.locator("[data-editor]").inner_text() == code


@pytest.mark.parametrize(("code", "selector", "text"), OUTPUTS.values(), ids=OUTPUTS)
def test_outputs_are_shown_as_jupyter_shows_them(live, cell, code, selector, text):
    state, _ = live.run(cell, code)
    assert state == ("error" if "raise" in code else "ok")
    shown = cell.locator(f".cell_output {selector}")
    shown.first.wait_for()
    assert text in shown.inner_text()
    if text and len(text) < 8:
        assert shown.inner_text().strip() == text


@pytest.mark.parametrize(
    "code",
    [
        f"from IPython.display import Image\nimport base64\nImage(base64.b64decode('{PIXEL}'))",
        'from IPython.display import SVG\nSVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>\')',
    ],
    ids=["PNG", "SVG"],
)
def test_pictures_are_shown(live, cell, code):
    assert live.run(cell, code)[0] == "ok"
    image = cell.locator(".cell_output img")
    live.page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=image.element_handle())


def test_streams_are_shown_as_they_come_and_a_loop_is_interrupted(live, cell):
    cell.locator("[data-editor]").fill("print('begun', flush=True)\nwhile True:\n    pass")
    live.press("run", cell)
    other = live.cell(".tag_exercise-starter-bucket-plan")
    live.press("run", other)
    cell.locator(".cell_output", has_text="begun").wait_for()
    cell.locator(".live-state", has_text=re.compile(r"running, [1-9]\d* s")).wait_for()
    assert (cell.get_attribute("data-state"), other.get_attribute("data-state")) == ("running", "queued")
    live.press("interrupt")
    state, text = live.finished(cell)
    assert state == "error"
    assert "KeyboardInterrupt" in text
    assert other.get_attribute("data-state") == "idle"  # what waited does not run


def test_a_cell_that_is_interrupted_while_its_kernel_starts_does_not_run(context, served):
    page = LivePage(context, served, CHAPTER)
    cell = page.cell(STARTER)
    cell.locator("[data-editor]").fill("print('ran')")
    page.press("run", cell)
    page.press("interrupt")
    state, text = page.finished(cell)
    assert state == "error"
    assert "interrupted" in text
    assert page.run(cell) == ("ok", "ran\n")
    page.press("reset", cell)
    page.page.close()


def test_a_killed_kernel_is_noticed_and_started_again_and_the_edit_stays(live, cell):
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    state, text = live.run(cell, code)
    assert state == "error"
    assert "died" in text
    assert cell.locator("[data-editor]").inner_text() == code
    assert live.run(cell, "print('alive')") == ("ok", "alive\n")
    assert live.run(cell, "x = 1") == ("ok", "")
    live.press("restart")
    live.page.locator("[data-kernel=idle]").wait_for()
    assert "NameError" in live.run(cell, "x")[1]


def test_a_kernel_that_the_server_has_ended_is_replaced(live, cell, served):
    assert live.run(cell, "y = 1")[0] == "ok"
    ended = kernels(served)
    live.page.evaluate("""async () => { for (const kernel of await (await fetch("/api/kernels")).json())
        await fetch(`/api/kernels/${kernel.id}`, {method: "DELETE",
                    headers: {"X-XSRFToken": document.cookie.match(/_xsrf=([^;]*)/)[1]}}) }""")
    live.page.locator(".live-kernel", has_text="ended").wait_for()
    assert "NameError" in live.run(cell, "y")[1]
    assert not kernels(served) & ended


def test_a_cell_that_needs_others_says_so_and_runs_them(live):
    live.press("restart")
    live.page.locator("[data-kernel=idle]").wait_for()
    cells = live.page.locator("article .cell:has(.cell_input)")
    cell = cells.nth(4)  # with a cell above it that the page leaves out
    cell.hover()
    assert "needs" in cell.locator(".live-state").inner_text()
    state, text = live.run(cell)
    assert state == "error"
    assert "cells above" in text
    stored = live.page.evaluate("n => JSON.parse(document.getElementById('live-cells').textContent).cells[n]", 4)
    assert not stored["shown"]
    cell.locator("[data-action=run-missing]").click()
    live.page.wait_for_function("cell => cell.dataset.state === 'ok'", arg=cell.element_handle())
    assert [cells.nth(i).get_attribute("data-state") for i in range(5)] == ["ok"] * 5
    for i in range(5):
        live.press("reset", cells.nth(i))


def test_the_keyboard_edits_runs_and_leaves(live, cell):
    editor, keyboard = cell.locator("[data-editor]"), live.page.keyboard
    editor.fill("")
    editor.focus()
    keyboard.type("for i in range(2):\nprint(i / 2)")
    keyboard.press("Enter")
    keyboard.press("Backspace")
    keyboard.type("if i:")
    keyboard.press("Tab")
    keyboard.type("pass")
    assert editor.inner_text().rstrip("\n") == "for i in range(2):\n    print(i / 2)\nif i: " + "  pass"
    keyboard.press("Control+Enter")
    assert live.finished(cell) == ("ok", "0.0\n0.5\n")
    assert "0.5" in live.page.locator("[aria-live=polite]").inner_text()
    keyboard.press("Shift+Enter")
    assert live.page.evaluate("document.activeElement.closest('.cell').className").count("joined-moments")
    editor.focus()
    assert editor.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    keyboard.press("Escape")
    keyboard.press("Tab")
    assert live.page.evaluate("document.activeElement.closest('.cell_input, .live-tools') !== null")
    assert not editor.evaluate("element => element === document.activeElement")
    live.finished(cell)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_with_outputs_can_be_read_and_fits_a_phone(live, cell, theme):
    live.page.emulate_media(color_scheme=theme)
    live.run(cell, "import sys\nprint('\\x1b[32mgreen\\x1b[0m', file=sys.stderr)\n{}['missing']")
    options = {"runOnly": ["wcag2a", "wcag2aa"], "resultTypes": ["violations"], "preload": False}
    live.page.set_viewport_size({"width": 390, "height": 844})
    violations = Axe().run(live.page, context=STARTER, options=options).response["violations"]
    violations += Axe().run(live.page, context=".live-bar", options=options).response["violations"]
    width = live.page.evaluate("document.documentElement.scrollWidth")
    live.page.evaluate("for (const y of [2000, 1500]) scrollTo({top: y, behavior: 'instant'})")
    live.page.locator("#pst-back-to-top").wait_for()
    covered = live.page.locator(".live-bar button").evaluate_all("""all => all.filter(button => {
        const box = button.getBoundingClientRect();
        return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) !== button })""")
    live.page.set_viewport_size({"width": 1280, "height": 900})
    live.page.emulate_media(color_scheme="light")
    assert [node["html"][:200] for violation in violations for node in violation["nodes"]] == []
    assert width <= 390
    assert covered == []


@pytest.mark.parametrize("pages", [2, pytest.param(10, marks=pytest.mark.long)])
def test_pages_have_kernels_of_their_own_which_end_with_them(live, context, cell, served, pages):
    live.run(cell, "mine = 1")
    before = kernels(served)
    for _ in range(pages):
        page = LivePage(context, served, CHAPTER)
        assert "NameError" in page.run(page.cell(STARTER), "mine")[1]
        assert len(kernels(served)) > len(before)
        page.page.close()
    until(lambda: kernels(served) == before, "the end of the closed pages' kernels", 30)
    assert live.faults == []


def test_the_server_ends_with_its_kernels_and_the_page_says_so(live, cell, served):
    process = int(live.run(cell, "import os\nos.getpid()")[1])
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(30) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    state, text = live.run(cell, "kept = 1")
    assert state == "error"
    assert "make serve" in text
    assert cell.locator("[data-editor]").inner_text() == "kept = 1"
    assert served.errors.read_text() == ""
