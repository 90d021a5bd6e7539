"""The frames of the explorable on layouts show sizes and times in proportion, and say what does not fit."""

import re
from xml.etree import ElementTree

import pytest

from d2lmini.figures.layout_frames import GIB, GREEN, PURPLE, layout_frame

SECONDS = {"compute": 3.0, "tensor": 1.0, "bubble": 0.0, "data": 0.0, "update": 0.0}


@pytest.mark.parametrize(("activations", "told"), [(40, "70 GiB of 72: fits"), (60, "90 GiB of 72: DOES NOT FIT")])
def test_a_frame_shows_parts_in_proportion(activations, told):
    memory = {"weights": 10 * GIB, "gradients": 20 * GIB, "optimizer": 0, "activations": activations * GIB}
    svg = layout_frame(memory, 72 * GIB, SECONDS, 5e3, [1e4, 9e3])._repr_svg_()
    ElementTree.fromstring(svg)
    assert told in svg
    widths = {
        colour: float(re.search(rf'width="([\d.]+)" height="22" fill="{colour}"', svg)[1]) for colour in (PURPLE,)
    }
    assert widths[PURPLE] == pytest.approx(460 / 4, abs=0.1)
    green = [float(width) for width in re.findall(rf'width="([\d.]+)" height="22" fill="{GREEN}"', svg)]
    assert green == pytest.approx([460 * activations / max(72, 30 + activations), 460 * 3 / 4], abs=0.1)
    assert [float(height) for height in re.findall(r'width="34" height="([\d.]+)"', svg)] == [70, 63, 35]
