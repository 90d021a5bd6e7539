"""Explorable figures: what the page holds, and what the widgets do; that a kernel stores both, nbval sees."""

import io
import re
from html import unescape
from itertools import product
from types import SimpleNamespace
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from d2lmini.figures.widgets import choice, explore


def draw_line(slope, style="-"):
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    axes.plot([0, 1 / 3, 1], [0, slope / 3, slope], style)
    axes.set_title(f"slope {slope}")
    return figure


def name_values(size, kind="a", fast=False):
    return f"<{size}> {kind} {fast}"


def frames_of(html):
    """Return the frames of a page's figure as (hidden, content)."""
    card = html.split('<div class="frames">')[1].split("<script>")[0]
    return [(bool(hidden), content) for hidden, content in re.findall(r"<div( hidden)?>(.*?)</div>\n", card, re.DOTALL)]


def svg_of(frame):
    return unquote(re.search(r'src="data:image/svg\+xml,([^"]*)"', frame)[1])


def test_page_holds_every_combination_in_order():
    sizes, kinds = [1, 2, 3], ["a", "b"]
    html = explore(name_values, size=choice(sizes, start=2), kind=kinds, fast=[False, True])._repr_html_()
    frames = frames_of(html)
    wanted = [f"<pre>&lt;{s}&gt; {k} {f}</pre>" for s, k, f in product(sizes, kinds, [False, True])]
    assert [content for _, content in frames] == wanted
    assert [content for hidden, content in frames if not hidden] == ["<pre>&lt;2&gt; a False</pre>"]


def test_controls_are_native_labelled_and_show_the_unit():
    size = choice([0.5, 1e-7], label="step <size>", unit="ms", start=1e-7)
    html = explore(name_values, size=size, kind=["a", "b"], fast=[False, True])._repr_html_()
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids)) == 3
    assert re.findall(r'<label for="([^"]*)"', html) == ids
    slider = re.search(r'<input [^>]*type="range" min="0" max="1" value="1" aria-valuetext="([^"]*)"><output', html)
    assert slider[1] == "1e-07 ms"
    assert '<label for="' + ids[0] + '">step &lt;size&gt;</label>' in html
    assert re.findall(r"<option value=(\d)( selected)?>([^<]*)<", html) == [
        ("0", " selected", "a"),
        ("1", "", "b"),
        ("0", " selected", "off"),
        ("1", "", "on"),
    ]


def test_an_argument_is_its_label_and_an_array_a_list_of_plain_numbers():
    explore(lambda a: 1 / 0, a=[1])  # nothing is drawn before it is shown
    assert ">batch size</label>" in explore(lambda batch_size: "x", batch_size=range(200))._repr_html_()
    assert type(choice(np.linspace(0, 1, 3)).values[1]) is float


def test_svg_is_small_valid_selfcontained_and_the_same_again():
    one, two = (svg_of(frames_of(explore(draw_line, slope=[1])._repr_html_())[0][1]) for _ in range(2))
    assert one == two
    ElementTree.fromstring(one)
    assert not re.search(r"<!|metadata|\d{4}-\d\d-\d\d", one)
    assert all(a.startswith("#") for a in re.findall(r"href=['\"]([^'\"]*)", one))
    plain = io.StringIO()
    with rc_context({"svg.hashsalt": "d2lmini"}):
        draw_line(1).savefig(plain, format="svg")
    assert len(one) < 0.8 * len(plain.getvalue())
    np.testing.assert_allclose(coordinates(one), coordinates(plain.getvalue()), atol=0.0051)


def coordinates(svg):
    """Return the coordinates of an SVG's paths and marks, in points and in its order."""
    attributes = re.findall(r" (?:d|x|y)=[\"']([^\"']*)", svg)
    return [float(number) for text in attributes for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def test_pictures_have_alternatives():
    plain = explore(draw_line, slope=choice([1, 2], unit="m"), style=["-"])._repr_html_()
    assert re.findall('alt="([^"]*)"', plain) == ["draw line: slope 1 m, style -", "draw line: slope 2 m, style -"]
    assert 'alt="A &lt;line&gt;: slope 1"' in explore(draw_line, alt="A <line>", slope=[1])._repr_html_()
    spoken = explore(draw_line, alt=lambda slope: f"It rises by {slope}.", slope=[1, 2])._repr_html_()
    assert re.findall('alt="([^"]*)"', spoken) == ["It rises by 1.", "It rises by 2."]


def test_draw_may_return_html_svg_or_text():
    html, svg = "<b>bold</b>", "<svg xmlns='http://www.w3.org/2000/svg'><text>50 % &amp; #1</text></svg>"
    results = [SimpleNamespace(_repr_html_=lambda: html), SimpleNamespace(_repr_svg_=lambda: svg), "a < b"]
    frames = [content for _, content in frames_of(explore(lambda i: results[i], i=range(3))._repr_html_())]
    assert (frames[0], svg_of(unescape(frames[1])), frames[2]) == (html, svg, "<pre>a &lt; b</pre>")


def test_pyplot_figures_are_closed():
    from matplotlib import pyplot

    pyplot.switch_backend("agg")

    def draw(height):
        pyplot.plot([0, height])
        return pyplot.gcf()

    explore(draw, height=[1, 2])._repr_html_()
    assert pyplot.get_fignums() == []


def fail(size):
    if size == 2:
        raise ZeroDivisionError("no\nsuch size")
    return "fine"


@pytest.mark.parametrize(
    ("make", "keyword"),
    [
        (lambda: explore(name_values), "at least one argument"),
        (lambda: explore(3, size=[1]), "function"),
        (lambda: explore(name_values, size=[]), "none"),
        (lambda: explore(name_values, size="abc"), "abc"),
        (lambda: choice([1], start=2), "start"),
        (lambda: explore(name_values, size=[1], sise=[1]), "sise"),
        (lambda: explore(name_values, kind=["a"]), "size"),
        (lambda: explore(name_values, size=range(201)), "201"),
        (lambda: explore(fail, size=choice([1, 2], unit="m"))._repr_html_(), "2 m: ZeroDivisionError"),
        (lambda: explore(lambda a: None, a=[1])._repr_html_(), "None"),
        (lambda: explore(lambda a: "x" * 300_000, a=range(9))._repr_html_(), "4 of 9"),
    ],
)
def test_mistakes_get_one_line(make, keyword):
    with pytest.raises(ValueError, match=keyword) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_live_face_recomputes_and_shows_an_error_in_place():
    calls = []

    def draw(size, kind):
        calls.append((size, kind))
        return fail(size)

    size, kind, picture = explore(draw, size=choice([1, 2, 3], start=3), kind=["a", "b"]).live().children
    assert (calls, size.label, kind.label) == ([(3, "a")], "3", "a")
    kind.index = 1
    assert calls[-1] == (3, "b")
    assert "<pre>fine</pre>" in picture.value
    size.index = 1
    assert "draw failed at size 2, kind b: ZeroDivisionError: no such size" in picture.value
    size.index = 0
    assert "<pre>fine</pre>" in picture.value
