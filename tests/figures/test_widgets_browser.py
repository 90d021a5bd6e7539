"""Explorable figures in Chromium: sliders move by keyboard, figures are independent, nothing is requested or logged."""

import pytest
from matplotlib.figure import Figure

from d2lmini.figures import ask
from d2lmini.figures.widgets import choice, explore

pytestmark = pytest.mark.browser


def draw_line(slope, style="-"):
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1], [0, slope], style)
    return figure


def show_size(size):
    return f"size {size}"


@pytest.fixture
def open_page(browser, tmp_path):
    """Return a function that opens figures in one page; afterwards the console was silent and nothing was requested."""
    noise, requests = [], []

    def open_with(*figures, **options):
        body = "".join(figure._repr_html_() for figure in figures)
        file = tmp_path / "page.html"
        file.write_text(f"<!doctype html><meta charset=utf-8><title>t</title>{body}", encoding="utf-8")
        page = browser.new_page(**options)
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_with
    assert noise == []
    assert len([url for url in requests if not url.startswith("data:")]) == 1  # the page itself


def test_keyboard_moves_the_slider_the_frame_and_the_text(open_page):
    page = open_page(explore(draw_line, slope=choice([1, 2, 3], unit="m", start=2), style=["-", "--"]))
    slider, menu, output = page.get_by_label("slope"), page.get_by_label("style"), page.locator("output")
    shown = page.locator(".frames img:visible")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert (output.inner_text(), slider.get_attribute("aria-valuetext")) == ("3 m", "3 m")
    assert [image.get_attribute("alt") for image in shown.all()] == ["draw line: slope 3 m, style -"]
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert menu.input_value() == "1"
    assert [image.get_attribute("alt") for image in shown.all()] == ["draw line: slope 1 m, style --"]
    assert shown.evaluate("image => image.complete && image.naturalWidth > 100")


def test_figures_on_a_page_are_independent_even_when_equal(open_page):
    same, other = explore(show_size, size=[1, 2]), explore(show_size, size=[1, 2, 3])
    page = open_page(same, same, other, same)
    sliders, ids = page.get_by_label("size"), page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert sliders.count() == len(set(ids)) == 4
    sliders.nth(1).press("ArrowRight")
    sliders.nth(2).press("End")
    assert page.locator("output").all_inner_texts() == ["1", "2", "3", "1"]
    assert page.locator("pre:visible").all_inner_texts() == [f"size {i}" for i in (1, 2, 3, 1)]


def test_without_script_the_start_is_visible(open_page):
    page = open_page(explore(show_size, size=choice([1, 2], start=2)), java_script_enabled=False)
    assert page.locator("pre:visible").all_inner_texts() == ["size 2"]
    assert page.get_by_label("size").is_disabled()


def test_figure_shrinks_to_a_phone(open_page):
    values = choice([10**9], unit="images a second", label="a rather long label of a choice")
    page = open_page(explore(draw_line, slope=values, style=["-"]), viewport={"width": 280, "height": 600})
    assert page.evaluate("document.documentElement.scrollWidth") <= 280
    assert page.locator(".frames").evaluate("card => card.scrollWidth <= card.clientWidth")
    box = page.locator(".frames img").bounding_box()
    assert box["width"] > 200
    assert box["width"] / box["height"] == pytest.approx(3 / 2, rel=0.02)


def test_a_question_opens_one_reply_at_a_time_by_keyboard(open_page):
    page = open_page(ask("How long?", {"half": "reply 1", "the same": "reply 2"}, "half"))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.get_by_text("reply 1").is_visible()
    assert not page.get_by_text("reply 2").is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.get_by_text("reply 2").is_visible()
    assert not page.get_by_text("reply 1").is_visible()
