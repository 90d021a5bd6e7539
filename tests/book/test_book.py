"""The built book as a reader has it: every page in a browser, served on this machine, with everything else blocked."""

import functools
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from browsing import HTML, PAGES

PHONE, SMALL_PHONE = (390, 844), (320, 640)

FAULTS = r"""() => {
  const faults = [], article = document.querySelector("article") ?? document.querySelector("main");
  if (document.documentElement.lang !== "en") faults.push("the page has no language");

  let level = 0;
  for (const heading of article.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) faults.push(`heading level ${next} after ${level}: ${heading.textContent}`);
    level = next;
  }
  const titles = article.querySelectorAll("h1").length;
  if (titles !== 1) faults.push(`${titles} headings of level 1`);

  for (const image of article.querySelectorAll("img")) {
    const named = image.alt && !/\.(png|svg|jpe?g)$/.test(image.alt);
    if (!named && !image.closest("figure")?.querySelector("figcaption"))
      faults.push(`an image has neither alternative text nor caption: ${image.src}`);
    if (!image.naturalWidth) faults.push(`an image does not show: ${image.src}`);
  }

  for (const math of article.querySelectorAll(".math")) {
    const rendered = math.querySelector("mjx-assistive-mml")?.textContent;
    if (!rendered || rendered.includes("\\") || math.querySelector("mjx-merror"))
      faults.push(`a formula is not rendered: ${math.textContent}`);
  }
  const text = article.cloneNode(true);
  text.querySelectorAll("pre, code, script, style, .math").forEach(element => element.remove());
  const raw = text.textContent.match(/\\[(\[]|\$\$|\$[^\s$]([^$\n]*[^\s$])?\$/);
  if (raw) faults.push(`a formula shows as it was typed: ${raw[0]}`);
  return faults;
}"""

SMALL_TEXT = """() => [...document.querySelectorAll("article p, article li, article td, article dd, article pre")]
  .filter(element => element.checkVisibility() && parseFloat(getComputedStyle(element).fontSize) < 14)
  .map(element => element.textContent.slice(0, 60))"""


class Elements(HTMLParser):
    """The start tags of a page, as (tag, attributes), and where a link can lead to."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed((HTML / page).read_text(encoding="utf-8"))
        self.ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        self.places = {*self.ids, *(attributes.get("name") for _, attributes in self.tags)}

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


elements = functools.cache(Elements)


def test_the_book_is_built():
    assert "index.html" in PAGES, "run make book first"


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_page(visit, name):
    visit.open(name)
    assert visit.page.evaluate(FAULTS) == []
    for size in (PHONE, SMALL_PHONE):
        visit.resize(size)
        width = visit.page.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0], f"scrolls sideways on a screen {size[0]} wide"
        assert visit.page.evaluate(SMALL_TEXT) == [], "text under 14 px"
    assert visit.faults == []


def prose(name):
    """Return the words of a page's paragraphs, in lower case."""
    text = re.sub(r"(?s)<(script|style|pre|code|nav|header|footer)\b.*?</\1>", " ", (HTML / name).read_text("utf-8"))
    paragraphs = " ".join(re.findall(r"(?s)<p>(.*?)</p>", text))
    return set(re.findall(r"\b[a-z]{8,}\b", re.sub(r"<[^>]*>", " ", paragraphs).lower()))


@pytest.mark.browser
@pytest.mark.parametrize("name", [name for name in PAGES if name != "search.html"])
def test_search(visit, name):
    own = prose(name).difference(*(prose(other) for other in PAGES if other != name))
    if not own:
        pytest.skip("the page has no long word of its own")
    word = max(own, key=lambda word: (len(word), word))
    visit.open("index.html")
    visit.page.locator(".search-button-field:visible, .search-button__button:visible").first.click()
    visit.page.locator("input[type=search]:visible").first.fill(word)
    visit.page.keyboard.press("Enter")
    links = visit.page.locator("#search-results li a")
    visit.page.get_by_text("Search finished").wait_for()  # results appear one after the other
    targets = links.evaluate_all("links => links.map(link => new URL(link.href).pathname)")
    assert f"/{name}" in targets, f"searching for {word} found {targets}"
    assert visit.faults == []


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(name):
    broken = []
    for tag, attributes in elements(name).tags:
        target = attributes.get("href") or attributes.get("src")
        if not target or target.startswith(("data:", "mailto:", "#!")):
            continue
        if re.match(r"(https?:)?//", target):
            if tag != "a":
                broken.append(f"<{tag}> loads {target}")
            continue
        path, fragment = urldefrag(urljoin(name, target))
        path = unquote(path.partition("?")[0]) or name
        if not (HTML / path).is_file():
            broken.append(f"no file: {target}")
        elif fragment and path.endswith(".html") and unquote(fragment) not in elements(path).places:
            broken.append(f"no such place: {target}")
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_no_two_elements_of_a_page_have_the_same_id(name):
    ids = elements(name).ids
    assert [name for name in set(ids) if ids.count(name) > 1] == []
