"""The chapters as slides: nothing is cut off, everything is there, and what moves on the page moves on the slide."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from browsing import DECKS, HTML, PAGES

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
PROJECTOR = (1280, 720)
SMALLEST_ZOOM = 0.5  # of code that is 20 px high

# Lays all slides and all frames of a figure out at once, and opens the longest reply to each question.
SHOW_ALL = """.slides section { display: block !important } .d2l-explore .frames { display: grid }
.slides .d2l-explore .frames > * { display: block !important; grid-area: 1 / 1 }"""
OPEN_ALL = """() => { for (const ask of document.querySelectorAll(".d2l-ask")) {
  const length = reply => reply.textContent.length;
  [...ask.querySelectorAll("details")].reduce((a, b) => length(a) > length(b) ? a : b).open = true; } }"""
OVERFULL = """() => [...document.querySelectorAll("section.slide")].flatMap((slide, i) => {
  const seen = [...slide.querySelectorAll("*")].filter(e => !e.closest("mjx-container, aside") && e.checkVisibility());
  const right = Math.max(...seen.map(e => e.getBoundingClientRect().right)), height = slide.offsetHeight;
  return right > 1280 || height > 720 ? [`slide ${i + 1}, ${slide.innerText.slice(0, 30)}: ${right} x ${height}`] : [];
})"""
ZOOMS = """() => [...document.querySelectorAll(".slides [style*=zoom]")].map(e => Number(e.style.zoom))"""
HEADINGS = """() => [...document.querySelectorAll(".slides :is(h1, h2, h3, h4)")].map(heading => heading.textContent)"""
KINDS = ("d2l-explore", "d2l-ask", "exercise admonition")
CURRENT = """() => document.querySelector("section.slide.present .frames > :not([hidden])").innerHTML"""
PLACE = "() => Reveal.getIndices()"


def show(visit, name):
    """Open a deck and wait until its slides are filled."""
    visit.open(name, PROJECTOR)
    visit.page.wait_for_function("window.Reveal?.isReady()")


def code_lines(chapter):
    """Return the lines of the code that a chapter shows in full, up to its exercises."""
    lines = []
    for cell in json.loads((CHAPTERS / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and re.search("(?m)^## Exercise", source):
            break
        if cell["cell_type"] == "code" and not cell["metadata"].get("tags"):
            lines += source.splitlines()
    return [line for line in lines if line.strip()]


def test_every_chapter_has_slides_and_its_page_leads_there():
    assert PAGES, "run make book first"
    assert {Path(name).name.partition(".")[0] for name in DECKS} == {path.stem for path in CHAPTERS.glob("*.ipynb")}


@pytest.mark.browser
@pytest.mark.parametrize("name", DECKS)
def test_all_is_there_and_fits(visit, name):
    page = (HTML / name.replace(".slides", "")).read_text(encoding="utf-8")
    assert f'<a href="{Path(name).name}"' in page, "the page does not lead to its slides"
    show(visit, name)
    titles = re.findall(r'<h[1-4]>(.+?)<a class="headerlink"', page)
    titles = [unescape(re.sub("<.*?>", "", title)) for title in titles]
    assert list(dict.fromkeys(visit.page.evaluate(HEADINGS))) == list(dict.fromkeys(titles))
    for kind in KINDS:
        assert visit.page.locator(".slides ." + kind.replace(" ", ".")).count() == len(
            re.findall(rf'<div class="{kind}[" ]', page)
        )
    assert visit.page.locator(".solution").count() == 0
    assert visit.page.locator("section.slide section").count() == 0  # reveal.js would take it for a slide
    code = "\n".join(visit.page.locator(".slides pre").all_text_contents())
    assert [line for line in code_lines(Path(name).name.partition(".")[0]) if line not in code] == []
    visit.page.add_style_tag(content=SHOW_ALL)
    visit.page.evaluate(OPEN_ALL)
    assert visit.page.evaluate(OVERFULL) == []
    assert min(visit.page.evaluate(ZOOMS), default=1) >= SMALLEST_ZOOM
    assert visit.faults == []


@pytest.mark.browser
def test_a_figure_moves_and_its_keys_do_not_turn_the_slide(visit):
    show(visit, "chapters/transfers.slides.html")
    slider = visit.page.locator(".d2l-explore input[type=range]").first
    slider.evaluate("""slider => { const place = Reveal.getIndices(slider.closest("section.slide"));
                                   Reveal.slide(place.h, place.v); }""")
    before, place = visit.page.evaluate(CURRENT), visit.page.evaluate(PLACE)
    slider.focus()
    slider.press("ArrowRight")
    assert visit.page.evaluate(CURRENT) != before
    assert visit.page.evaluate(PLACE) == place
    visit.page.evaluate("document.activeElement.blur()")
    visit.page.keyboard.press("Space")
    assert visit.page.evaluate(PLACE) != place
