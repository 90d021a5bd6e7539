"""Figures of the memory hierarchy: curves over the working set with the caches drawn in, and rooflines."""

from matplotlib import rc_context

from d2lmini.figures.plots import LINES, STYLE, axes
from d2lmini.hardware import host
from d2lmini.measuring.levels import size

TICKS = [4096 << 3 * k for k in range(7)]  # 4 KiB to 1 GiB
MARKS = "osD^vP*X"  # told apart without colour


def curves(named, ylabel, value, caches=None, title=None, ylim=None, figsize=(6.5, 3.6)):
    """Return a figure of points over their working sets: `named` is label -> list of `memory_hierarchy.Point`.

    value: turns seconds into what is drawn, 1e9 times that for nanoseconds. The band around a line is the 95 %
    interval of each median. `caches` are this machine's unless given; each is a vertical line at its size, if the
    working sets reach it. ylim: the ends of the vertical axis, for figures that are compared.
    """
    figure, ax = axes("working set", ylabel, title, figsize)
    with rc_context(STYLE):
        for (label, points), line in zip(named.items(), LINES, strict=False):
            sizes = [point.nbytes for point in points]
            ax.plot(sizes, [value(point.seconds.median) for point in points], line, label=label)
            ends = [sorted(map(value, point.seconds.interval)) for point in points]
            ax.fill_between(sizes, *zip(*ends, strict=True), alpha=0.3)
        ax.set(xscale="log", yscale="log", ylim=ylim)
        ax.set_xticks(TICKS, [size(tick) for tick in TICKS])
        ax.minorticks_off()  # they would be half of the figure's bytes
        smallest, largest = (end(point.nbytes for points in named.values() for point in points) for end in (min, max))
        ax.set_xlim(smallest / 1.5, largest * 1.5)
        known = host.caches() if caches is None else caches
        for cache in (cache for cache in known if smallest <= cache.nbytes <= largest):
            ax.axvline(cache.nbytes, color="0.45", linewidth=1)
            ax.annotate(f"L{cache.level}", (cache.nbytes, 1), xycoords=("data", "axes fraction"),
                        xytext=(-3, -10), textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
        ax.legend(fontsize=9)
    return figure


def nanoseconds(seconds):
    """Return seconds in nanoseconds, for the latencies of `curves`."""
    return seconds * 1e9


def gigabytes_per_s(seconds):
    """Return the GB/s of so many seconds a byte, for the bandwidths of `curves`."""
    return 1e-9 / seconds


def roofline(roofs, marks=(), title=None, ylim=None, figsize=(6.5, 3.8), intensities=(1 / 16, 1024)):
    """Return a figure of `roofline.Roof`s and of operations under them; both axes grow by factors.

    marks: (label, FLOPs a byte, FLOP/s) for each operation. ylim: in GFLOP/s, for figures that are compared.
    """
    figure, ax = axes("FLOPs a byte", "GFLOP/s", title, figsize)
    low, high = intensities
    with rc_context(STYLE):
        for roof, line in zip(roofs, LINES, strict=False):
            corners = [low, max(low, min(roof.ridge, high)), high]
            ax.plot(corners, [roof.attainable(x) / 1e9 for x in corners], line, label=roof.name)
        for (label, x, y), mark in zip(marks, MARKS, strict=False):
            ax.plot([x], [y / 1e9], mark, markersize=8, label=label)
        ax.set(xscale="log", yscale="log", ylim=ylim)
        ax.minorticks_off()
        ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
