"""The built book as a reader has it: every page in a browser, served on this machine, with everything else blocked."""

import functools
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
import serve

HTML = Path(__file__).resolve().parents[2] / "_build" / "html"
# What lies in _static are parts and templates, not pages.
PAGES = sorted(name for path in HTML.rglob("*.html") if not (name := path.relative_to(HTML).as_posix()).startswith("_"))
CODE = "chapters/devices.html"  # a short page with much code
DESKTOP, PHONE, SMALL_PHONE = (1280, 900), (390, 844), (320, 640)

# Shows what a reader can unfold: folded cells, and the solutions of exercises.
UNFOLD = """() => {
  document.querySelectorAll("details").forEach(details => { details.open = true; });
  document.querySelectorAll("button.toggle-button-hidden").forEach(button => button.click());
}"""

# Without motion no colour is read in the middle of its change.
STILL = "*, *::before, *::after { transition: none !important; animation: none !important }"

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

# Figures are drawn for a light ground, which the page turns round in the dark; they must bring one.
DARK_IMAGES = """() => [...document.querySelectorAll("article img")].filter(image => {
  let ground = image;
  while (ground && /, 0\\)|transparent/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
  const [r, g, b] = getComputedStyle(ground ?? document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 160;
}).map(image => image.src)"""

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


class Visit:
    """One browser tab and what went wrong in it."""

    def __init__(self, browser, base):
        self.base, self.faults = base, []
        context = browser.new_context()
        context.add_init_script("localStorage.clear()")
        context.route("**/*", self.only_local)
        self.page = context.new_page()
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.faults.append(f"console: {m.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("requestfailed", lambda r: self.faults.append(f"failed: {r.url}"))
        self.page.on("response", lambda r: r.status >= 400 and self.faults.append(f"{r.status}: {r.url}"))

    def only_local(self, route):
        if route.request.url.startswith((self.base, "data:", "blob:")):
            route.continue_()
        else:
            self.faults.append(f"left this machine: {route.request.url}")
            route.abort()

    def open(self, name):
        self.page.goto("about:blank")  # what the page before was still loading ends here
        self.faults.clear()
        self.page.emulate_media(color_scheme="light")
        self.resize(DESKTOP)
        self.page.goto(f"{self.base}/{name}")
        self.page.evaluate("window.MathJax?.startup?.promise")
        self.page.add_style_tag(content=STILL)
        self.page.evaluate(UNFOLD)

    def resize(self, size):
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.wait_for_function("width => innerWidth === width", arg=size[0])
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def switch(self, mode):
        """Press the reader's own switch until it says `mode`: auto, light or dark."""
        for _ in range(3):
            if self.page.evaluate("document.documentElement.dataset.mode") == mode:
                return
            self.page.locator(".theme-switch-button:visible").first.click()
            self.page.mouse.move(0, 0)  # no tooltip
        assert self.page.evaluate("document.documentElement.dataset.mode") == mode, "the theme switch does not switch"

    def has_theme(self, theme):
        return self.page.evaluate("document.documentElement.dataset.theme") == theme

    def check_theme(self, theme, code):
        """Look at the colours; at those of the code, which are the same on every page, only where `code` says so."""
        assert self.has_theme(theme)
        if theme == "dark":
            assert self.page.evaluate(DARK_IMAGES) == [], "figures on a dark ground"
        from axe_playwright_python.sync_playwright import Axe

        apart = None if code else {"exclude": [[".highlight"]]}
        result = Axe().run(self.page, context=apart, options={"runOnly": ["color-contrast"]}).response
        nodes = [node for violation in result["violations"] for node in violation["nodes"]]
        low = [f"{node['html'][:120]}: {node['any'][0]['message']}" for node in nodes]
        assert low == [], f"hard to read in the {theme} theme"


@pytest.fixture(scope="module")
def site():
    server = serve.make_server(0, HTML)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def visit(site, browser):
    return Visit(browser, site)


def test_the_book_is_built():
    assert "index.html" in PAGES, "run make book first"


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_page(visit, name):
    visit.open(name)
    assert visit.page.evaluate(FAULTS) == []
    visit.check_theme("light", code=name == CODE)  # as the reader's system says
    visit.switch("dark")
    visit.check_theme("dark", code=name == CODE)
    visit.page.emulate_media(color_scheme="dark")
    visit.switch("light")
    assert visit.has_theme("light")
    visit.switch("auto")
    assert visit.has_theme("dark")
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
