"""Every page can be read in the light and in the dark, and its reader chooses which."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import PAGES

# Figures are drawn for a light ground, which the page turns round in the dark; they must bring one.
DARK_IMAGES = """() => [...document.querySelectorAll("article img")].filter(image => {
  let ground = image;
  while (ground && /, 0\\)|transparent/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
  const [r, g, b] = getComputedStyle(ground ?? document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 160;
}).map(image => image.src)"""

# axe takes its time for each element. Of those that look the same in both themes, one is enough.
LOOKS = """() => {
  window.looks ??= new Map();
  const grounds = new Map();
  for (const element of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(element);
    const own = [style.backgroundColor, style.backgroundImage, style.opacity, style.filter].join();
    const below = grounds.get(element.parentElement) ?? "";
    grounds.set(element, own === "rgba(0, 0, 0, 0),none,1,none" ? below : `${below} ${own}`);
    const look = [looks.get(element), style.color, style.fontSize, style.fontWeight, grounds.get(element)].join("|");
    looks.set(element, look);
  }
}"""
ONE_OF_EACH = """() => {
  const seen = new Set(), repeated = [];
  for (const [element, look] of looks) {
    const texts = [...element.childNodes].filter(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!texts.length || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (seen.has(look)) repeated.push(...texts);
    seen.add(look);
  }
  repeated.forEach(text => text.remove());
  for (const element of [...looks.keys()].reverse())
    if (element.closest("article") && !element.textContent.trim() && !element.querySelector("*")) element.remove();
}"""

pytestmark = pytest.mark.browser


def hard_to_read(visit):
    """Return what axe finds hard to read."""
    options = {"runOnly": ["color-contrast"], "resultTypes": ["violations"], "preload": False}
    violations = Axe().run(visit.page, options=options).response["violations"]
    nodes = [node for violation in violations for node in violation["nodes"]]
    return [f"{node['html'][:120]}: {node['any'][0]['message']}" for node in nodes]


@pytest.mark.parametrize("name", PAGES)
def test_page(visit, name):
    visit.open(name)
    assert visit.has_theme("light")  # as the reader's system says
    visit.page.evaluate(LOOKS)
    visit.switch("dark")
    assert visit.has_theme("dark")
    assert visit.page.evaluate(DARK_IMAGES) == [], "figures on a dark ground"
    visit.page.evaluate(LOOKS)
    visit.page.evaluate(ONE_OF_EACH)
    assert hard_to_read(visit) == []
    visit.switch("light")
    assert hard_to_read(visit) == []


def test_the_system_s_theme_holds_until_the_reader_chooses_one(visit):
    visit.open("index.html")
    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    visit.switch("light")
    assert visit.has_theme("light")
    visit.switch("auto")
    assert visit.has_theme("dark")
