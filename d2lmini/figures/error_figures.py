"""Figures about a model's errors: simulated over published, as dots about one."""

import math

from matplotlib import rc_context
from matplotlib.ticker import NullLocator

from d2lmini.figures import plots

CROWDED = 4  # dots on a line, from which on they are drawn by turns above and below it


def factors(groups, ticks, far, height=0.4):
    """Return a figure of factors as dots about 1 on a logarithmic axis, a line of dots for each group.

    Args:
        groups: Name -> [(factor, label)].
        ticks: Of the axis; the first and the last are its ends.
        far: A dot above this factor, or below 1 over it, shows its label.
        height: Of a line, in inches.
    """
    figure, ax = plots.axes("simulated ÷ published", figsize=(4.8, height * len(groups) + 1.1))
    with rc_context(plots.STYLE):
        ax.axvline(1, color="black", linewidth=1)
        for place, dots in enumerate(groups.values()):
            apart = 0.12 if len(dots) >= CROWDED else 0
            for turn, (factor, label) in enumerate(sorted(dots)):
                below = -((-1) ** turn)
                spot = factor, place + apart * below
                ax.plot(*spot, "o", alpha=0.6, color="C0", markeredgewidth=0)
                if not 1 / far < factor < far:
                    along = math.log(factor / ticks[0]) / math.log(ticks[-1] / ticks[0])
                    side = "right" if along > 0.7 else "left"
                    beside = (0, -15 if apart and below > 0 else 6)
                    ax.annotate(label, spot, beside, textcoords="offset points", fontsize=9.5, ha=side)
        _lay_out(ax, list(groups), ticks)
    return figure


def held_out(groups, ticks, within, far):
    """Return a figure of factors about 1, fitted ones as dots and held-out ones as triangles that do not overlap.

    Args:
        groups: Name -> [(factor, label, whether it was held out)].
        ticks: Of the axis; the first and the last are its ends.
        within: Factors from 1 over this one to this one lie in a grey band.
        far: A label is written once in a group, if its mark next to 1 is further off than this factor.
    """
    figure, ax = plots.axes("too slow ← simulated ÷ published → too fast", figsize=(4.8, 0.65 * len(groups) + 1.2))
    with rc_context(plots.STYLE):
        ax.axvspan(1 / within, within, color="0.87", linewidth=0, label=f"within {within:g}×")
        ax.axvline(1, color="black", linewidth=1)
        for place, marks in enumerate(groups.values()):
            offsets, named = [], set()
            for factor, label, held in sorted(marks, key=lambda mark: abs(math.log(mark[0]))):
                across = math.log(factor) / math.log(ticks[-1] / ticks[0])
                offsets.append((across, _free(across, offsets)))
                spot = factor, place + offsets[-1][1]
                ax.plot(*spot, "^" if held else "o", color="C1" if held else "C0", markersize=4.5, markeredgewidth=0)
                if label and label not in named and not 1 / far < factor < far:
                    beside, side = ((8, -4), "left") if factor < 1 else ((-8, -4), "right")
                    ax.annotate(label, spot, beside, textcoords="offset points", fontsize=9.5, ha=side)
                named.add(label)
        kept = sum(held for marks in groups.values() for *_, held in marks)
        ax.plot([], [], "oC0", label=f"{sum(map(len, groups.values())) - kept} fitted")
        ax.plot([], [], "^C1", label=f"{kept} held out")
        _lay_out(ax, list(groups), ticks)
        ax.set_xlabel(ax.get_xlabel(), fontsize=10)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9.5, handletextpad=0.3)
    return figure


def _free(across, taken):
    """Return the offset next to 0, in lines, at which a mark touches none of those at `taken`."""
    for step in range(len(taken) + 1):
        for offset in (0.1 * step, -0.1 * step):
            if all(math.hypot((across - x) / 0.026, (offset - y) / 0.1) > 0.9 for x, y in taken):
                return offset


def _lay_out(ax, names, ticks):
    """Give a factor's logarithmic axis its ticks, and each line its name."""
    ax.set(xscale="log", xlim=(ticks[0] / 1.05, ticks[-1] * 1.05))
    ax.set_xticks(ticks, [f"{tick:g}×" for tick in ticks], fontsize=9.5)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(len(names)), names, fontsize=9.5)
    ax.set_ylim(len(names) - 0.5, -0.7)
