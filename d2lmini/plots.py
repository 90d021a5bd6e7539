"""Figures: a plot that grows while training runs, and SVG that is the same bytes whenever the figure is the same."""

import io
import re

from matplotlib import rc_context
from matplotlib.figure import Figure

STYLE = {
    "svg.hashsalt": "d2lmini",  # element ids derive from content, not from chance
    "svg.fonttype": "path",  # letters travel as outlines, so they look the same without our fonts
    "figure.facecolor": "white",
    "axes.grid": True,
    "grid.alpha": 0.35,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 11,
    "lines.linewidth": 2,
}
LINES = ("-", "--", "-.", ":")  # told apart without colour


def svg(figure):
    """Return a matplotlib figure as SVG text without a date, the same for the same figure."""
    with rc_context(STYLE), io.StringIO() as file:
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
        text = file.getvalue()
    return re.sub(r"\s+$", "", text, flags=re.MULTILINE) + "\n"


def axes(xlabel=None, ylabel=None, title=None, figsize=(5.5, 3.2)):
    """Return a new figure, outside pyplot's list, and its axes, in the book's style; `figsize` in inches."""
    with rc_context(STYLE):
        figure = Figure(figsize=figsize, layout="constrained")
        ax = figure.subplots()
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    return figure, ax


class Animator:
    """Draw lines that grow while training runs; in a notebook, one figure that is updated in place.

    The interface is d2l's: `legend` names the lines, `xlim`, `ylim`, `xscale`, `yscale` shape the axes, and `X`, `Y`
    hold one list of points a line. Outside a notebook nothing is shown, and `figure()` gives the plot.
    """

    def __init__(self, xlabel=None, ylabel=None, legend=None, xlim=None, ylim=None, xscale="linear", yscale="linear",
                 figsize=(5.5, 3.2)):  # fmt: skip
        """Remember how to draw; the figure appears with the first point."""
        self.labels, self.legend, self.figsize = (xlabel, ylabel), legend or [], figsize
        self.options = {"xscale": xscale, "yscale": yscale}
        self.options |= {name: limits for name, limits in (("xlim", xlim), ("ylim", ylim)) if limits is not None}
        self.X, self.Y, self._display = [], [], None

    def add(self, x, y):
        """Add the point (x, y), or one point a line when `y` is a sequence; None adds nothing to that line."""
        ys = y if hasattr(y, "__len__") else [y]
        xs = x if hasattr(x, "__len__") else [x] * len(ys)
        while len(self.X) < len(ys):
            self.X.append([])
            self.Y.append([])
        for i, (a, b) in enumerate(zip(xs, ys, strict=True)):
            if a is not None and b is not None:
                self.X[i].append(float(a))
                self.Y[i].append(float(b))
        self._show()

    def figure(self):
        """Return what was added so far as a matplotlib figure."""
        with rc_context(STYLE):
            figure, ax = axes(*self.labels, figsize=self.figsize)
            for i, (x, y) in enumerate(zip(self.X, self.Y)):
                label = self.legend[i] if i < len(self.legend) else None
                ax.plot(x, y, LINES[i % len(LINES)], marker="o", markersize=4, label=label)
            ax.set(**self.options)
            if self.legend:
                ax.legend()
        return figure

    def _show(self):
        shell = _notebook()
        if shell is None:
            return
        from IPython.display import display

        data = {"image/svg+xml": svg(self.figure()), "text/plain": f"<plot of {len(self.Y)} lines>"}
        if self._display is None:
            self._display = display(data, raw=True, display_id=True)
        else:
            self._display.update(data, raw=True)


def _notebook():
    """Return IPython's shell when it runs under a notebook's kernel, else None."""
    import sys

    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if shell is not None and hasattr(shell, "kernel") else None
