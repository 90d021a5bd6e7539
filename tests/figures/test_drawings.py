"""Drawings: every one can be read on a phone and takes the page's colours."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from d2lmini.figures import drawings

SVG = "{http://www.w3.org/2000/svg}"
NAMES = sorted(path.stem for path in drawings.FOLDER.glob("*.svg"))


def wide(element):
    """Return about how wide a line of text is, in units: letters of a wide common font are 0.58 as wide as high."""
    size = 13 if "small" in element.get("class", "") else 14
    return 0.58 * size * len("".join(element.itertext()))


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_can_be_read_on_a_phone_in_light_and_dark(name):
    root = ElementTree.parse(drawings.FOLDER / f"{name}.svg").getroot()
    left, top, width, height = map(float, root.get("viewBox").split())
    assert width <= drawings.WIDEST, "too wide: its letters are too small on a phone"
    classes = set(re.findall(r"\.d2l-drawing (?:text)?\.?([\w-]+) ", drawings.STYLE)) | {"text"}
    for element in root.iter():
        for attribute in ("fill", "stroke", "style", "font-size", "font-family"):
            assert element.get(attribute) in (None, "none"), f"{attribute}: the page's style gives colours and letters"
        assert set(element.get("class", "").split()) <= classes, element.attrib
        if element.tag == f"{SVG}text":
            x, y = float(element.get("x")), float(element.get("y"))
            start = x - wide(element) * (
                ("middle" in element.get("class", "") and 0.5) or "end" in element.get("class", "")
            )
            assert left <= start, f"{element.text!r} begins outside"
            assert start + wide(element) <= left + width, f"{element.text!r} ends outside"
            assert top < y <= top + height, f"{element.text!r} stands outside"


def test_two_drawings_share_no_id_and_are_told_in_words():
    shown = drawings.drawing("host-and-gpus", "a host <and> two GPUs")
    assert repr(shown) == "a host <and> two GPUs"
    html = shown._repr_html_()
    assert 'aria-label="a host &lt;and&gt; two GPUs"' in html
    assert 'id="arrow-host-and-gpus"' in html
    assert "url(#arrow)" not in html
    ElementTree.fromstring(html[html.index("<svg") :])


def test_an_unknown_drawing_is_told_which_there_are():
    with pytest.raises(ValueError, match="host-and-gpus"):
        drawings.drawing("no such", "nothing")
