"""A printed page is complete: every heading, no line cut off, the replies to questions, and dark on white."""

import re

import pytest
from browsing import PAGES

PAPER = (718, 1000)  # A4 less its margins, in CSS pixels
LARGEST = "chapters/clusters.html"  # its figures, tables, questions and exercises fill many sheets

LOST = """() => {
  const article = document.querySelector("article") ?? document.querySelector("main"), edge = innerWidth + 1;
  const shown = [...article.querySelectorAll("h2, h3, h4, pre, table, img, .d2l-ask p")]
    .filter(element => !element.closest("details.hide, [hidden], #jb-print-docs-body"));
  const right = element => element.getBoundingClientRect().left + Math.max(element.offsetWidth, element.scrollWidth);
  return shown.filter(element => !element.checkVisibility() || right(element) > edge)
    .map(element => element.tagName + ": " + element.textContent.slice(0, 60));
}"""

pytestmark = pytest.mark.browser


def outline(pdf):
    """Return the titles in a PDF's outline, one after another."""
    plain = re.findall(rb"/Title \((.*?)(?<!\\)\)", pdf)
    wide = [bytes.fromhex(text.decode())[2:].decode("utf-16-be") for text in re.findall(rb"/Title <(FEFF\w+)>", pdf)]
    return "\n".join([*(re.sub(rb"\\(.)", rb"\1", text).decode("latin-1") for text in plain), *wide])


@pytest.mark.parametrize("name", [name for name in PAGES if name != "search.html"])
def test_nothing_is_lost_on_paper(visit, name):
    visit.open(name, unfold=False)
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    visit.page.emulate_media(media="print")
    visit.resize(PAPER)
    assert visit.page.evaluate(LOST) == []


def test_a_dark_page_is_printed_with_every_heading_and_light(visit):
    visit.open(LARGEST, unfold=False)
    visit.page.emulate_media(media="screen", color_scheme="dark")
    visit.page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    visit.page.evaluate("addEventListener('beforeprint', () => { printed = document.documentElement.dataset.theme })")
    headings = visit.page.locator("article :is(h1, h2, h3)").evaluate_all("all => all.map(h => h.firstChild.data)")
    found = outline(visit.page.pdf(format="A4", outline=True, tagged=True))
    assert [heading for heading in headings if heading not in found] == []
    assert visit.page.evaluate("printed") == "light"
    assert visit.has_theme("dark")
