"""Figures of the memory hierarchy: they show every point, its interval, the caches and the corner of the roof."""

import numpy as np
import pytest

from d2lmini.figures import memory_figures as figures
from d2lmini.host import Cache
from d2lmini.measuring.memory_hierarchy import Point
from d2lmini.measuring.roofline import Roof
from d2lmini.timing import Measurement

POINTS = [Point(n * 1024, Measurement(tuple(n * 1e-9 * (1 + i / 100) for i in range(11)))) for n in (4, 8, 16)]
CACHES = (Cache(1, 8192, 64, 1), Cache(2, 16384, 64, 1), Cache(3, 2**20, 64, 1))


def test_curves_show_medians_intervals_and_caches():
    figure = figures.curves({"random": POINTS, "in order": POINTS[:2]}, "ns", figures.nanoseconds, CACHES)
    (ax,) = figure.axes
    random, in_order, first, second = ax.lines
    assert random.get_xdata().tolist() == [4096, 8192, 16384]
    assert random.get_ydata().tolist() == pytest.approx([4.2, 8.4, 16.8])
    assert len(in_order.get_xdata()) == 2
    assert (first.get_xdata()[0], second.get_xdata()[0]) == (8192, 16384)  # the third is out of reach
    assert [text.get_text() for text in ax.texts] == ["L1", "L2", "random", "in order"]
    band = ax.collections[0].get_paths()[0].vertices
    low, high = POINTS[0].seconds.interval
    ends = band[np.isclose(band[:, 0], 4096), 1]
    assert (ends.min(), ends.max()) == (pytest.approx(low * 1e9), pytest.approx(high * 1e9))
    (rates,) = figures.curves({"random": POINTS}, "GB/s", figures.gigabytes_per_s, ()).axes[0].lines
    assert rates.get_ydata().tolist() == pytest.approx([1 / 4.2, 1 / 8.4, 1 / 16.8])


def written(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_axes_say_kib_and_mib_and_can_be_fixed():
    (ax,) = figures.curves({"random": POINTS}, "ns", figures.nanoseconds, CACHES, ylim=(1, 100)).axes
    assert written(ax.xaxis)[:3] == ["4\nKiB", "32\nKiB", "256\nKiB"]
    assert written(ax.yaxis) == ["1", "2", "5", "10", "20", "50", "100"]
    assert ax.get_ylim() == (1, 100)
    assert ax.get_xlim()[0] < 4096
    (ax,) = figures.roofline([Roof("card", 1e12, 1e11)], ylim=(10, 1e6)).axes
    assert ax.get_ylim() == (10, 1e6)
    assert written(ax.yaxis) == ["10", "100", "1,000", "10,000", "100,000", "1,000,000"]
    assert written(ax.xaxis) == ["0.1", "1", "10", "100", "1,000"]


def test_of_two_curves_each_is_named_where_they_are_farthest_apart():
    high = [Point(p.nbytes, Measurement(tuple(x * f for x in p.seconds.seconds))) for p, f in zip(POINTS, (2, 9, 3))]
    (ax,) = figures.curves({"low": POINTS, "high": high}, "ns", figures.nanoseconds, ()).axes
    low, top = ax.texts
    assert (low.xy[0], top.xy[0]) == (8192, 8192)
    assert low.xyann[1] < 0 < top.xyann[1]


@pytest.mark.parametrize("height", [0.5, 1])  # below the roof, and on it
def test_names_of_marks_do_not_lie_on_one_another_and_stay_in_the_figure(height):
    marks = [(f"product {n}", 100 * 1.8**n, height * 1e12 * 1.05**-n) for n in range(4)]
    figure = figures.roofline([Roof("card", 1e12, 1e11)], marks)
    figure.draw_without_rendering()
    (ax,) = figure.axes
    boxes = [text.get_window_extent() for text in ax.texts]
    assert sorted(text.get_text() for text in ax.texts) == sorted(["card", *(name for name, _, _ in marks)])
    for box in boxes[1:]:
        assert ax.bbox.x0 <= box.x0
        assert box.x1 <= ax.bbox.x1
        assert box.y1 <= ax.bbox.y1
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


@pytest.mark.parametrize(("flops", "corner"), [(1e12, 10), (1e8, 1 / 16), (1e17, 2048)])  # inside the figure, outside
def test_the_roof_bends_at_its_ridge_and_marks_stand_where_they_are(flops, corner):
    figure = figures.roofline([Roof("card", flops, 1e11)], [("add", 0.5, 4e10), ("product", 100, 8e11)])
    roof, add, product = figure.axes[0].lines
    assert roof.get_xdata().tolist() == [1 / 16, corner, 2048]
    assert roof.get_ydata().tolist() == pytest.approx([min(100 * x, flops / 1e9) for x in (1 / 16, corner, 2048)])
    assert (add.get_xdata().tolist(), add.get_ydata().tolist()) == ([0.5], [40])
    assert (product.get_xdata().tolist(), product.get_ydata().tolist()) == ([100], [800])
