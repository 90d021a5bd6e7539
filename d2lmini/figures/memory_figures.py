"""Figures of the memory hierarchy: curves over the working set with the caches drawn in, rooflines.

What a line or a mark stands for is written beside it. All are narrow enough to be read on a telephone without zooming.
"""

import functools
import math

import numpy as np
from matplotlib import rc_context
from matplotlib.textpath import TextPath
from matplotlib.ticker import NullLocator

from d2lmini import host
from d2lmini.figures.plots import LINES, STYLE, axes, ink
from d2lmini.measuring.levels import size

TICKS = [4096 << 3 * k for k in range(7)]  # 4 KiB to 1 GiB
MARKS = "osD^vP*X"  # told apart without colour
SMALL = 9.5  # points: at least 9 pixels where a figure of FIGSIZE fills a screen of 390
FIGSIZE = (4.8, 3.5)
# Where a mark's name may stand: so many points from it, and which end of the name is there; the first that is free.
PLACES = (
    (8, -3, "left"),
    (-8, -3, "right"),
    (0, 8, "center"),
    (0, -15, "center"),
    (4, 10, "left"),
    (4, -18, "left"),
    (-4, -18, "right"),
    (-4, 10, "right"),
    (0, -29, "center"),
    (4, -29, "left"),
    (-4, -29, "right"),
    (0, -45, "center"),
    (0, 22, "center"),
    (0, -61, "center"),
    (0, -77, "center"),
)
FAR = 20  # points: a name farther above or below its mark has a line to it
ROOF_PLACE = (-3, 3, "right")  # a roof's name stands left of its ridge, where no operation can be


def curves(named, ylabel, value, caches=None, title=None, ylim=None):
    """Return a figure of points over their working sets.

    The band around a line is the 95 % interval of each median. Each of several lines has its label where it is farthest
    from the others.

    Args:
        named: Label -> list of `memory_hierarchy.Point`.
        ylabel: Of the vertical axis, with its unit.
        value: A function that turns the seconds of a point into what is drawn: for nanoseconds 1e9 times that.
        caches: This machine's unless given; each is a vertical line at its size, if the working sets reach it.
        title: Above the figure.
        ylim: The ends of the vertical axis, for figures that are compared.
    """
    figure, ax = axes("working set", ylabel, None, FIGSIZE)
    drawn = {
        label: ([p.nbytes for p in points], [value(p.seconds.median) for p in points])
        for label, points in named.items()
    }
    with rc_context(STYLE):
        for (label, (sizes, values)), line in zip(drawn.items(), LINES, strict=False):
            ax.plot(sizes, values, line, label=label)
            ends = [sorted(map(value, point.seconds.interval)) for point in named[label]]
            ax.fill_between(sizes, *zip(*ends, strict=True), alpha=0.3)
        ax.set(xscale="log", yscale="log", ylim=ylim)
        ax.set_title(title, fontsize=SMALL, pad=18)  # the caches' names stand below it
        ax.set_xticks(TICKS, [size(tick).replace(" ", "\n") for tick in TICKS], fontsize=SMALL)
        ax.xaxis.set_minor_locator(NullLocator())
        smallest, largest = (end(min(x) if end is min else max(x) for x, _ in drawn.values()) for end in (min, max))
        ax.set_xlim(smallest / 1.5, largest * 1.5)
        _readable(ax.yaxis, *ax.get_ylim())
        _draw_caches(ax, host.caches() if caches is None else caches, smallest, largest)
        if len(drawn) > 1:
            _label_curves(ax, drawn)
    return figure


def nanoseconds(seconds):
    """Return seconds in nanoseconds, for the latencies of `curves`."""
    return seconds * 1e9


def gigabytes_per_s(seconds):
    """Return the GB/s of so many seconds a byte, for the bandwidths of `curves`."""
    return 1e-9 / seconds


def roofline(roofs, marks=(), title=None, ylim=None):
    """Return a figure of rooflines and of operations under them; both axes are logarithmic.

    Args:
        roofs: A list of `measuring.roofline.Roof`.
        marks: (label, FLOPs a byte, FLOP/s) of each operation.
        title: Above the figure.
        ylim: The ends of the vertical axis in GFLOP/s, for figures that are compared.
    """
    figure, ax = axes("FLOPs for each byte", "GFLOP/s", None, (4.8, 3.8))
    low, high = 1 / 16, 2048  # FLOPs a byte
    with rc_context(STYLE):
        for roof, line in zip(roofs, LINES, strict=False):
            corners = [low, _ridge(roof, low, high), high]
            ax.plot(corners, [roof.attainable(x) / 1e9 for x in corners], line, color="0.35")
            ax.annotate(
                roof.name,
                (corners[1], roof.attainable(corners[1]) / 1e9),
                xytext=ROOF_PLACE[:2],
                ha=ROOF_PLACE[2],
                fontsize=SMALL,
                textcoords="offset points",
            )
        for (_, x, y), mark in zip(marks, MARKS, strict=False):
            ax.plot([x], [y / 1e9], mark, markersize=7)
        ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=ylim or (None, 4 * ax.get_ylim()[1]))
        ax.set_title(title, fontsize=SMALL + 1)
        for axis, ends in ((ax.xaxis, (low, high)), (ax.yaxis, ax.get_ylim())):
            _readable(axis, *ends)
        _name_marks(ax, roofs, marks)
    return figure


def _readable(axis, low, high, written="{:,.10g}".format, most=8):
    """Give a logarithmic axis at most so many plain numbers: 1, 2, 5, 10 … over few decades, else powers of ten."""
    steps = (1, 2, 5) if high / low <= 300 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    ticks = [tick for tick in ticks if low <= tick * 1.0001 and tick <= high * 1.0001]
    ticks = ticks[:: -(-len(ticks) // most)]
    axis.set_ticks(ticks, [written(tick) for tick in ticks], fontsize=SMALL)
    axis.set_minor_locator(NullLocator())


def _draw_caches(ax, caches, smallest, largest):
    for cache in (cache for cache in caches if smallest <= cache.nbytes <= largest):
        ax.axvline(cache.nbytes, color="0.45", linewidth=1)
        ax.annotate(
            f"L{cache.level}",
            (cache.nbytes, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL,
        )


def _label_curves(ax, drawn):
    """Write each curve's label where the factor between it and the nearest other curve is largest."""
    for number, (label, (sizes, values)) in enumerate(drawn.items()):
        others = [np.interp(np.log(sizes), np.log(x), np.log(y)) for name, (x, y) in drawn.items() if name != label]
        gaps = np.log(values) - np.array(others)
        place = int(np.abs(gaps).min(axis=0).argmax())
        above = gaps[:, place].max() > 0 if len(others) == 1 else gaps[:, place].min() > 0
        side = ("left", "center", "right")[min(2, 3 * place // len(sizes))]
        ax.annotate(
            label,
            (sizes[place], values[place]),
            xytext=(0, 8 if above else -16),
            ha=side,
            fontsize=SMALL,
            textcoords="offset points",
            color=ink(f"C{number}"),
        )


def _name_marks(ax, roofs, marks):
    """Write the marks' names beside them, each at the first of `PLACES` where it hides no other name, mark or roof."""
    ax.figure.draw_without_rendering()  # from here on it is known where the axes lie
    scale = 72 / ax.figure.dpi

    def at(x, flops_per_s):
        return scale * (ax.transData.transform((x, flops_per_s / 1e9)) - ax.bbox.p0)

    width, height = scale * ax.bbox.width, scale * ax.bbox.height
    points = [at(x, y) for _, x, y in marks]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    for roof in roofs:
        low, high = ax.get_xlim()
        left, top = at(_ridge(roof, low, high), roof.flops_per_s)
        slope = np.linspace(at(low, roof.attainable(low)), (left, top), 40)
        taken += [(x - 1, y - 1, x + 1, y + 1) for x, y in slope]
        taken += [(left, top - 1, width, top + 1), _box(left, top, roof.name, ROOF_PLACE)]
    # From the right, where marks are crowded. A name is not in the layout: for it the axes would shrink.
    for number, ((label, x, y), point) in reversed([*enumerate(zip(marks, points, strict=True))]):
        boxes = [_box(*point, label, place) for place in PLACES]
        inside = [box[0] > 0 and box[1] > 0 and box[2] < width and box[3] < height for box in boxes]
        free = [fits and not any(_overlap(box, other) for other in taken) for box, fits in zip(boxes, inside)]
        chosen = free.index(True) if True in free else 0
        taken.append(boxes[chosen])
        right, up, end = PLACES[chosen]
        ax.annotate(
            label,
            (x, y / 1e9),
            xytext=(right, up),
            textcoords="offset points",
            ha=end,
            fontsize=SMALL,
            color=ink(f"C{number}"),
            arrowprops={"arrowstyle": "-", "color": ink(f"C{number}"), "linewidth": 0.7} if abs(up) > FAR else None,
        ).set_in_layout(False)


def _ridge(roof, low, high):
    """Return a roof's ridge, in FLOPs a byte, or the end of the axis that it lies beyond."""
    return max(low, min(roof.ridge, high))


def _box(x, y, label, place):
    """Return left, bottom, right, top of a name at a place beside (x, y), all in points."""
    right, up, end = place
    width = _width(label)
    left = x + right - {"left": 0, "center": width / 2, "right": width}[end]
    return left, y + up - 2, left + width, y + up + SMALL


@functools.cache  # Matplotlib finds the ends of every curve of every letter, and a name is tried at many places
def _width(label):
    """Return how wide a name is, in points."""
    return TextPath((0, 0), label, size=SMALL).get_extents().width


def _overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
