"""Figures: a plot that grows while training runs, and images that are the same bytes whenever the figure is the same.

A figure is shown as an <img> with its SVG in the address and a description in ``alt``: it needs no file and no network,
its ids cannot clash with another figure's, and those who do not see it are told what it shows.
"""

import io
import re
import sys
from html import escape
from urllib.parse import quote

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from d2lmini.trainer.history import History

STYLE = {
    "svg.hashsalt": "d2lmini",  # element ids derive from content, not from chance
    "svg.fonttype": "path",  # letters travel as outlines, so they look the same without our fonts
    "figure.facecolor": "white",  # readable on a dark page too
    "axes.grid": True,
    "grid.alpha": 0.35,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 11,
    "lines.linewidth": 2,
}
LINES = ("-", "--", "-.", ":")  # told apart without colour
CARD = "max-width: 100%; background: white; border-radius: 0.25rem"


def axes(xlabel=None, ylabel=None, title=None, figsize=(5.5, 3.2)):
    """Return a new figure in the book's style, outside pyplot's list, and its axes.

    Args:
        xlabel, ylabel: Of the axes, with their units.
        title: Above the figure.
        figsize: In inches.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=figsize, layout="constrained")
        ax = figure.subplots()
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    return figure, ax


def ink(color, contrast=4.5):
    """Return a matplotlib colour, darkened until words in it can be read on white: a contrast of 4.5 to 1 (WCAG).

    Small thin words want more: 7 is WCAG's other level.
    """
    rgb = np.array(to_rgb(color))
    while _contrast(rgb) < contrast:
        rgb *= 0.98
    return to_hex(rgb)


def pictures(images, titles, columns, figsize):
    """Return a figure of grey images in rows, each under its title.

    Args:
        images: [n, H, W].
        titles: One for each.
        columns: Images in a row.
        figsize: In inches.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=figsize, layout="constrained")
        for i, (image, title) in enumerate(zip(images, titles, strict=True)):
            ax = figure.add_subplot(-(-len(images) // columns), columns, i + 1)
            ax.imshow(np.asarray(image), cmap="gray_r", interpolation="none")
            ax.set_title(str(title), fontsize=11)
            ax.set_axis_off()
    return figure


def svg(figure):
    """Return a matplotlib figure as small SVG text: no date, no comments, points to two decimals."""
    with rc_context(STYLE), io.StringIO() as file:
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
        text = file.getvalue()
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)  # or a notebook would show it a second time
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' (?:d|x|y)="[^"]*"|translate\([^)]*\)', _shortened, text)
    return re.sub(r">\s+<", "><", text).strip()


def image(svg_text, alt):
    """Return SVG text as an HTML image described by `alt`."""
    uri = quote(svg_text.replace('"', "'") if "'" not in svg_text else svg_text, safe=" '/:;=,()+!?@*")
    return f'<img style="{CARD}" alt="{escape(alt)}" src="data:image/svg+xml,{uri}">'


def show(figure, alt):
    """Show a matplotlib figure in a notebook, with `alt`, a sentence or two for those who do not see it."""
    from IPython.display import display

    display({"text/html": image(svg(figure), alt), "text/plain": alt}, raw=True)


class Animator:
    """Draw lines that grow while training runs; in a notebook, one figure that is updated in place.

    The interface is d2l's: `legend` names the lines, `xlim` and `ylim` end the axes, and `X`, `Y` hold one list of
    points a line. Outside a notebook nothing is shown, and `figure()` gives the plot.
    """

    def __init__(self, xlabel=None, ylabel=None, legend=None, xlim=None, ylim=None):
        self.labels, self.legend, self.limits = (xlabel, ylabel), legend or [], {"xlim": xlim, "ylim": ylim}
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
            figure, ax = axes(*self.labels)
            for i, (x, y) in enumerate(zip(self.X, self.Y)):
                label = self.legend[i] if i < len(self.legend) else None
                ax.plot(x, y, LINES[i % len(LINES)], marker="o", markersize=4, label=label)
            ax.set(**self.limits)
            ax.xaxis.get_major_locator().set_params(integer=True)  # there is no epoch 1.5
            if self.legend:
                ax.legend()
        return figure

    def describe(self):
        """Return in a sentence what the plot shows."""
        names = [self.legend[i] if i < len(self.legend) else f"line {i + 1}" for i in range(len(self.Y))]
        ends = [f"{name} from {y[0]:.3g} to {y[-1]:.3g}" for name, y in zip(names, self.Y) if y]
        return f"{self.labels[1] or 'y'} against {self.labels[0] or 'x'}: {'; '.join(ends)}"

    def _show(self):
        if not in_notebook():
            return
        from IPython.display import display

        alt = self.describe()
        data = {"text/html": image(svg(self.figure()), alt), "text/plain": alt}
        if self._display is None:
            self._display = display(data, raw=True, display_id=True)
        else:
            self._display.update(data, raw=True)


def history(record):
    """Return a figure of a `History`: the training loss and, if it has one, the test accuracy against the epoch."""
    parts = _recorded(record)
    with rc_context(STYLE):
        figure = Figure(figsize=(8, 3), layout="constrained")
        for i, (name, values) in enumerate(parts):
            ax = figure.add_subplot(1, len(parts), i + 1)
            ax.plot(range(1, len(values) + 1), values, marker="o", markersize=4, color=f"C{i}")
            ax.set(xlabel="epoch", ylabel=name)
            ax.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _recorded(record):
    parts = ("training loss", record.loss), ("test accuracy", record.accuracy)
    return [(name, values) for name, values in parts if values]


def _history_html(record):
    ends = [f"{name} from {values[0]:.3g} to {values[-1]:.3g}" for name, values in _recorded(record)]
    return image(svg(history(record)), f"{len(record.loss)} epochs: {'; '.join(ends)}") if ends else None


# The layers below know nothing of figures: what a notebook shows for a history is hung onto it from here.
History._repr_html_ = _history_html


def in_notebook():
    """Say whether this process is a notebook's kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def _contrast(rgb):
    """Return the contrast with white of a colour, three numbers from 0 to 1, as WCAG 2 defines it."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return 1.05 / (linear @ (0.2126, 0.7152, 0.0722) + 0.05)


def _shortened(coordinates):
    """Keep two decimals of a point, enough for the eye and free of a sum's last-digit noise, and no needless space."""
    text = re.sub(r"\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}".rstrip("0").rstrip("."), coordinates[0])
    return re.sub(r"\s*([MLQCz])\s*", r"\1", text)
