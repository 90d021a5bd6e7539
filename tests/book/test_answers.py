"""Questions that commit, and what is ticked: in the built pages, in a browser that keeps what it is told."""

import pytest

from d2lmini.figures import predict

pytestmark = pytest.mark.browser
PAGE = "chapters/devices.html"
STARTER = ".cell.tag_exercise-starter-move"
TELL = """(cell, text) => {
    document.dispatchEvent(new CustomEvent("live:done", { detail: { cell, ok: true, text } }));
}"""
PUT = """(cell, html) => {
    cell.querySelector(".output").innerHTML = html;
    document.dispatchEvent(new CustomEvent("live:done", { detail: { cell, ok: true, text: "" } }));
}"""


@pytest.fixture
def page(site, browser):
    context = browser.new_context()
    context.route("**/mathjax/**", lambda route: route.abort())  # no formula is looked at
    page = context.new_page()
    page.goto(f"{site}/{PAGE}")
    yield page
    context.close()


EXPLAINED = """() => [...document.querySelectorAll("[data-gated]")].map(output => {
    const behind = [];
    let next = output.closest(".cell").nextElementSibling;
    for (; next?.matches("p, ul, ol"); next = next.nextElementSibling) behind.push(next.checkVisibility());
    return behind;
})"""


def first(page):
    """Return the first question, and the output that it asks about."""
    ask = page.locator(".d2l-ask").first
    return ask, ask.locator("xpath=ancestor::div[contains(@class, 'cell ')]/following-sibling::div").locator(
        "css=.cell_output"
    ).first


def test_an_output_is_folded_until_its_question_is_answered_and_the_answer_stays(page, site):
    page.goto(f"{site}/chapters/data-parallel.html")  # text explains what its first question asks about
    ask, output = first(page)
    explanation = output.locator("xpath=ancestor::div[contains(@class, 'cell ')]/following-sibling::*").first
    gates = page.locator("[data-gated]").count()
    assert gates > 1
    assert output.get_attribute("data-gated") is not None
    assert "The batch of 50" in explanation.text_content()
    assert not output.is_visible()
    assert not explanation.is_visible()
    behind = page.evaluate(EXPLAINED)
    assert not any(shown for shown, *_ in behind)
    assert any(later[-1:] == [True] for _, *later in behind)  # what teaches more needs no answer
    right = ask.locator("details:has(strong:text('Yes.')) > summary")
    wrong = ask.locator("details:has(strong:text('No.')) > summary").first
    wrong.press("Enter")
    for _ in range(2):
        assert ask.get_attribute("data-answered") == "wrong"
        assert wrong.locator("..").get_attribute("open") is not None
        assert output.is_visible()
        assert explanation.is_visible()
        assert page.locator("[data-gated]").count() == gates - 1
        right.click()  # may be read, but the first answer counts
        assert ask.get_attribute("data-answered") == "wrong"
        page.reload()
    page.evaluate("localStorage.clear()")
    page.reload()
    right.click()
    assert ask.get_attribute("data-answered") == "right"


def test_who_runs_a_cell_sees_its_output_and_who_runs_all_is_still_asked(page):
    _, output = first(page)
    for action, shown in (("run-all", False), ("run", True)):
        output.evaluate(
            """(output, action) => {
            const button = Object.assign(document.createElement("button"), { textContent: "Run" });
            button.dataset.action = action;
            output.before(button);
            button.click();
        }""",
            action,
        )
        assert output.is_visible() == shown


def test_who_wants_to_be_shown_is_shown_but_has_not_answered(page):
    ask, output = first(page)
    page.locator(".gate button").first.click()
    assert output.is_visible()
    assert ask.get_attribute("data-answered") == "shown"
    assert page.locator(".bd-docs-nav .done").count() == 0


GUESSES = {  # what is typed: the verdict, and a word of what is said
    "2.2 ms": ("right", "within"),
    "7": ("right", "within"),
    "1.9": ("wrong", "small"),
    "1,000": ("wrong", "large"),
    "-4": ("wrong", "zero"),
    "4 s": (None, "in ms"),
    "": (None, "in ms"),
    "4 ms or so": (None, "in ms"),
}


def test_a_number_is_judged_within_its_factor_and_in_its_unit(page):
    ask, output = first(page)
    cell = ask.locator("xpath=ancestor::div[contains(@class, 'cell ')]")
    cell.evaluate(PUT, predict("How long?", 4.0, "ms", within=2, why="So long.")._repr_html_())
    for guess, (verdict, word) in GUESSES.items():
        page.evaluate("bookProgress.clear()")
        ask.locator("details").evaluate("details => { details.open = false; }")
        assert output.get_attribute("data-gated") is not None
        ask.locator("input").fill(guess)
        ask.locator("input").press("Enter")
        assert ask.get_attribute("data-answered") == verdict, guess
        assert word in ask.locator("output").inner_text(), guess
        assert ask.get_by_text("So long.").is_visible() == (verdict is not None), guess
        assert (output.get_attribute("data-gated") is None) == (verdict is not None), guess


def test_all_is_there_without_a_script_and_on_paper(page, site, browser):
    page.emulate_media(media="print")
    assert all(output.is_visible() for output in page.locator("[data-gated], [data-explains-gated]").all())
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{site}/{PAGE}")
    assert plain.locator("[data-gated], [data-explains-gated], .gate").count() == 0
    assert first(plain)[1].is_visible()
    context.close()


def test_what_is_done_is_ticked_in_the_page_in_the_contents_and_on_the_front_page(page, site):
    first(page)[0].locator("summary").first.click()
    mark = page.locator("#exercise-move .admonition-title .done")
    entry = page.locator(".bd-docs-nav .current.active > a .done")
    total = page.evaluate("bookItems['chapters/devices'].length")
    for lines, solved in (("✓ move: right", 1), ("✗ move: no\n", 0), ("✗ was wrong\n✓ move: right", 1)):
        page.locator(STARTER).evaluate(TELL, lines)
        assert mark.count() == solved
        assert entry.inner_text() == f"{1 + solved} of {total}"
    page.goto(f"{site}/index.html")
    assert "2 of" in page.locator(".progress-summary").inner_text()
    assert page.locator(".bd-docs-nav .done").all_inner_texts() == [f"2 of {total}"]
    page.get_by_role("button", name="Clear my progress").click()
    assert page.locator(".done").count() == 0
    page.get_by_role("button", name="Undo").click()
    assert page.locator(".done").count() > 0
    page.get_by_role("button", name="Clear my progress").click()
    page.goto(f"{site}/{PAGE}")
    assert page.locator(".done, [data-answered]").count() == 0
