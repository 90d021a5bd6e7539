"""What is the same on every page: the search, which finds each page, and the choice between light and dark."""

import functools
import re
from collections import defaultdict

import pytest
from browsing import HTML, PAGES

SEARCHED = [name for name in PAGES if name != "search.html"]

pytestmark = pytest.mark.browser


@functools.cache
def prose(name):
    """Return the words of a page's paragraphs, in lower case."""
    text = re.sub(r"(?s)<(script|style|pre|code|nav|header|footer)\b.*?</\1>", " ", (HTML / name).read_text("utf-8"))
    paragraphs = " ".join(re.findall(r"(?s)<p>(.*?)</p>", text))
    return set(re.findall(r"\b[a-z]{8,}\b", re.sub(r"<[^>]*>", " ", paragraphs).lower()))


@functools.cache
def pages_of_words():
    """Return the pages that each word stands on."""
    pages = defaultdict(set)
    for name in SEARCHED:
        for word in prose(name):
            pages[word].add(name)
    return pages


def own_word(name):
    """Return the longest word that only this page has, or None."""
    own = [word for word in prose(name) if len(pages_of_words()[word]) == 1]
    return max(own, key=lambda word: (len(word), word), default=None)


def found(visit):
    """Return the pages that a search has found."""
    visit.page.get_by_text("Search finished").wait_for()  # results appear one after the other
    links = visit.page.locator("#search-results li a")
    return links.evaluate_all("links => links.map(link => new URL(link.href).pathname.slice(1))")


def test_a_word_that_one_page_has_leads_there(visit):
    """The first word comes with the address; for the others the search is asked again, as the address asks it."""
    words = {name: word for name in SEARCHED if (word := own_word(name))}
    first, *others = words
    visit.open(f"search.html?q={words[first]}")
    missed = [first] * (first not in found(visit))
    for name in others:
        visit.page.evaluate(
            """word => { document.querySelector("#search-results").replaceChildren(); Search.performSearch(word); }""",
            words[name],
        )
        missed += [name] * (name not in found(visit))
    assert [f"{name}: {words[name]}" for name in missed] == []
    assert len(words) > len(SEARCHED) / 2, "most pages have a long word of their own"
    assert visit.faults == []


def test_the_search_opens_on_any_page(visit):
    visit.open("references.html")
    visit.page.locator(".search-button-field:visible, .search-button__button:visible").first.click()
    visit.page.locator("input[type=search]:visible").first.fill(own_word("chapters/devices.html"))
    visit.page.keyboard.press("Enter")
    assert "chapters/devices.html" in found(visit)
    assert visit.faults == []


def test_the_system_s_theme_holds_until_the_reader_chooses_one_and_paper_is_light(visit):
    visit.open("index.html")
    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    visit.page.evaluate("addEventListener('beforeprint', () => { printed = document.documentElement.dataset.theme })")
    visit.page.pdf()
    assert visit.page.evaluate("printed") == "light"
    assert visit.has_theme("dark")
    visit.switch("light")
    assert visit.has_theme("light")
    visit.switch("auto")
    assert visit.has_theme("dark")
