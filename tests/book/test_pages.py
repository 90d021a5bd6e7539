"""Every page as its reader has it: opened once, it is looked at on paper, on two phones, in the light and the dark."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import PAGES

PAPER = (718, 1000)  # A4 less its margins, in CSS pixels
PHONE, SMALL_PHONE = (390, 844), (320, 640)
LAPTOP = (1200, 900)  # the narrowest with both columns beside the page
# What neither is nor holds a heading is not laid out, so that the PDF has few pages to draw.
ONLY_HEADINGS = "article :not(:has(h1, h2, h3), h1, h2, h3, :is(h1, h2, h3) *) { display: none !important }"
TITLES = "all => all.map(h => h.textContent.replace(h.querySelector('.headerlink')?.textContent, ''))"

pytestmark = pytest.mark.browser


# The pages of the API are made from docstrings by one template: the others are `long`.
API, SOME = "reference/api/", ("reference/api/simgpu.html", "reference/api/d2lmini.trainer.html")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(page, marks=pytest.mark.long if page.startswith(API) and page not in SOME else [])
        for page in PAGES
    ],
)
def visit(visit, request):
    """The tab with a page in it, for all tests of the page, in their order."""
    visit.open(request.param, PAPER)
    return visit


def outline(pdf):
    """Return the titles in a PDF's outline, one after another, without spaces: where a line ends, they lack one."""
    plain = re.findall(rb"/Title \((.*?)(?<!\\)\)", pdf)
    wide = [bytes.fromhex(text.decode())[2:].decode("utf-16-be") for text in re.findall(rb"/Title <(FEFF\w+)>", pdf)]
    return bare("\n".join([*(re.sub(rb"\\(.)", rb"\1", text).decode("latin-1") for text in plain), *wide]))


def bare(text):
    return "".join(text.split())


def test_nothing_is_lost_on_paper(visit):
    visit.page.emulate_media(media="print")
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    lost = visit.ask("lost")
    visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
    visit.page.emulate_media(media="screen")
    assert lost == []


# A PDF takes seconds, and what prints headings is one style sheet for all pages: the others are `long`.
PRINTED = ("index.html", "chapters/transfers.html", "reference/glossary.html")


@pytest.mark.parametrize(
    "visit",
    [pytest.param(page, marks=[] if page in PRINTED else pytest.mark.long) for page in PAGES],
    indirect=True,
)
def test_a_pdf_has_every_heading_in_its_outline(visit):
    visit.resize(PAPER)
    headings = visit.page.locator("article :is(h1, h2, h3)").evaluate_all(TITLES)
    style = visit.page.add_style_tag(content=ONLY_HEADINGS)
    found = outline(visit.page.pdf(format="A4", outline=True, tagged=True))
    style.evaluate("style => style.remove()")
    assert [heading for heading in headings if bare(heading) not in found] == []


def moves(page, control, by):
    """Say whether a control moves what it should when it is used by keyboard or by mouse, and which it is."""
    at = control.evaluate("book.reach")
    if by == "keyboard":
        page.keyboard.press(at["key"])
    elif at["menu"]:  # what opens is the system's own
        control.select_option(index=at["item"])
    else:
        page.mouse.click(at["x"], at["y"])
    return at["focused"] and control.evaluate("book.moved"), f"{by}: {at['name']}"


def test_every_control_moves_something_by_keyboard_and_by_mouse(visit):
    visit.ask("unfold")
    controls = visit.page.evaluate_handle("book.controls()").get_properties().values()
    tried = [moves(visit.page, control.as_element(), by) for control in controls for by in ("keyboard", "mouse")]
    assert [name for moved, name in tried if not moved] == []


def test_it_is_in_order_and_fits_on_a_phone(visit):
    visit.ask("unfold")
    assert visit.ask("faults") == []
    for size in (SMALL_PHONE, PHONE):
        visit.resize(size)
        width = visit.page.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0], f"scrolls sideways on a screen {size[0]} wide"
        assert visit.ask("tooSmall") == [], "text under 14 px"
    assert visit.ask("tooWide") == []


def test_no_code_and_no_table_is_cut_off_on_a_laptop(visit):
    visit.resize(LAPTOP)
    assert visit.ask("cutOff") == []


LOOKS = []  # that can be read in the light and in the dark


def hard_to_read(visit):
    """Return what axe finds hard to read."""
    options = {"runOnly": ["color-contrast"], "resultTypes": ["violations"], "preload": False}
    violations = Axe().run(visit.page, options=options).response["violations"]
    nodes = [node for violation in violations for node in violation["nodes"]]
    return [f"{node['html'][:120]}: {node['any'][0]['message']}" for node in nodes]


def test_colours_can_be_read_in_the_light_and_in_the_dark(visit):
    visit.resize(LAPTOP)  # where the page before it was left: another width lays everything out again
    visit.ask("unfold")
    assert visit.has_theme("light")  # as the reader's system says
    visit.ask("look")
    visit.switch("dark")
    assert visit.has_theme("dark")
    assert visit.ask("darkGrounds") == [], "figures on a dark ground"
    visit.ask("look")
    # Of the page, only this is left to look at: one of each look that no page before has had.
    new = visit.page.evaluate("earlier => book.keepOneOfEachLook(earlier)", LOOKS)
    if new:
        assert hard_to_read(visit) == []
        visit.switch("light")
        assert hard_to_read(visit) == []
        LOOKS.extend(new)


def test_all_the_time_the_console_was_silent_and_nothing_was_asked_of_another_machine(visit):
    assert visit.faults == []
