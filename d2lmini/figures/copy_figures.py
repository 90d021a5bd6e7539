"""Figures about copies: their rate against their size, and how well a line describes their times."""

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from d2lmini.figures import plots
from d2lmini.measuring.levels import size


def rates(curves, marks=(), title=None, limits=None):
    """Return a figure of the rate of a copy, bytes ÷ seconds, against its size, both on logarithmic axes.

    Args:
        curves: Name -> (sizes in bytes, seconds). The name stands above the first curve's highest point and below that
            of the others, so that it lies on no other curve.
        marks: Points (bytes, bytes per second, name) to draw as dots.
        title: Above the figure.
        limits: Of the axis of rates, in GB/s.
    """
    figure, ax = plots.axes("bytes in one copy", "GB/s", title, figsize=(5.5, 3.2))
    for i, (name, (sizes, seconds)) in enumerate(curves.items()):
        rate = [n / t / 1e9 for n, t in zip(sizes, seconds)]
        ax.loglog(sizes, rate, plots.LINES[i % len(plots.LINES)], color=f"C{i}")
        top = rate.index(max(rate))
        beside = (0, -16 if i else 6)
        ax.annotate(
            name, (sizes[top], rate[top]), beside, textcoords="offset points", ha="center", color=plots.ink(f"C{i}")
        )
    for nbytes, bytes_per_s, name in marks:
        ax.plot(nbytes, bytes_per_s / 1e9, "o", color="tab:red")
        ax.annotate(name, (nbytes, bytes_per_s / 1e9), (8, -12), textcoords="offset points", color=plots.ink("tab:red"))
    _sizes_along(ax, *zip(*[(sizes[0], sizes[-1]) for sizes, _ in curves.values()]))
    ax.margins(y=0.12)
    ax.set_ylim(limits)
    _values_along(ax)
    return figure


def _sizes_along(ax, firsts, lasts):
    """Mark the axis of sizes at every fifth power of two, in KiB and MiB."""
    ax.set_xlim(min(firsts) / 1.5, max(lasts) * 1.5)
    ax.xaxis.set_major_locator(FixedLocator([2**k for k in range(0, 41, 5)]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: size(n)))


def _values_along(ax):
    """Mark the other axis at powers of ten, and at 2 and 5 times them where it spans no more than three."""
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high <= 1000 * low else (1,)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
