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
        ax.set(xscale="log", xlim=(ticks[0] / 1.05, ticks[-1] * 1.05))
        ax.set_xticks(ticks, [f"{tick:g}×" for tick in ticks], fontsize=9.5)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_yticks(range(len(groups)), list(groups), fontsize=9.5)
        ax.set_ylim(len(groups) - 0.5, -0.7)
    return figure
