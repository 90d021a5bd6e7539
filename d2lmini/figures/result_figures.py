"""Figures of recorded runs on real cards: epochs by variant, copies with their fit, simulated against measured.

A chapter needs two lines, and is right whether there are records or not:

    found = results.load("results")
    result_figures.show(found)
"""

from itertools import cycle

import numpy as np
from matplotlib import rc_context

from d2lmini.figures import plots
from d2lmini.figures.plots import LINES, STYLE, axes
from d2lmini.timing import human

NOTHING = "no results of a real card are recorded yet"
MARKS = "osD^vP*X"  # told apart without colour
ROW = 0.42  # inches that a bar takes


def show(found):
    """Show in a notebook what `results.load` returned: a line on each card and its figures, or that there is none."""
    if not found:
        print(NOTHING)
    for result in found:
        print(describe(result))
        for figure, alt in figures(result):
            plots.show(figure, alt)


def describe(result):
    """Return in a line whose figures these are."""
    told = result["origin"]
    return (f"{told['cards']} × {told['card']}, {told['clock']} on {told['date']}: torch {told['torch']}, "
            f"CUDA {told['cuda']}, driver {told['driver']}, host {told['host_cpu']}")  # fmt: skip


def figures(result):
    """Yield each figure of a result with the text that describes it; parts without figures are left out."""
    yield epochs(result)
    yield copies(result)
    if result["scaling"]["rows"]:
        yield scaling(result)
    if result["simulated"]["rows"]:
        yield compared(result)


def epochs(result):
    """Return a figure of the seconds an epoch of each variant, and its description."""
    part = result["training"]
    rows = [(row["name"], row["seconds"]) for row in part["epochs"]]
    what = f"seconds an epoch of {part['network']}, {part['images']:,} images, batches of {part['batch_size']}"
    return _bars(rows, what, _title(result)), _alt(result, what, rows, human)


def scaling(result):
    """Return a figure of the trainer's seconds an epoch by the number of devices, and its description."""
    rows = [(f"{row['devices']} device{'s' * (row['devices'] > 1)}", row["seconds"]) for row in
            result["scaling"]["rows"]]  # fmt: skip
    what = "seconds an epoch on several devices"
    rates = [f"all-reduce on {row['devices']}: busbw {row['busbw']['value'] / 1e9:.3g} GB/s"
             for row in result["scaling"]["rows"] if "busbw" in row]  # fmt: skip
    return _bars(rows, what, _title(result)), "; ".join([_alt(result, what, rows, human), *rates])


def compared(result):
    """Return a figure of simulated ÷ measured seconds, and its description."""
    rows = [(row["name"], row["ratio"]) for row in result["simulated"]["rows"]]
    what = "simulated ÷ measured seconds"
    figure = _bars(rows, what, _title(result))
    (ax,) = figure.axes
    ax.axvline(1, color="0.3", linestyle="--", linewidth=1)
    ax.set_xlim(0, max(2, *(1.1 * _upper(found) for _, found in rows)))
    return figure, _alt(result, what, rows, "{:.3g}".format)


def copies(result):
    """Return a figure of every route's copies with the line fitted to them, and its description."""
    figure, ax = axes("bytes", "seconds", _title(result), (7, 4.4))
    told = []
    with rc_context(STYLE):
        for number, (row, mark, line) in enumerate(zip(result["copies"]["routes"], cycle(MARKS), cycle(LINES))):
            sizes = np.array([point["size"]["value"] for point in row["points"]])
            alpha, beta = row["alpha"]["value"], row["beta"]["value"]
            ax.errorbar(sizes, [point["seconds"]["value"] for point in row["points"]], _errors(row["points"]), fmt=mark,
                        color=f"C{number % 10}", markersize=4, elinewidth=1)  # fmt: skip
            label = f"{row['name']}: {human(alpha)} + bytes ÷ {beta / 1e9:.3g} GB/s"
            ax.plot(sizes, alpha + sizes / beta, line, color=f"C{number % 10}", linewidth=1, label=label)
            told.append(label)
        ax.set(xscale="log", yscale="log")
        ax.minorticks_off()
        figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    return figure, f"{_title(result)}: seconds of copies against bytes, with fitted lines: {'; '.join(told)}"


def _bars(rows, xlabel, title):
    """Return a figure of a bar a row, with its interval, its value beside it; the first row on top."""
    figure, ax = axes(xlabel, None, title, (7, 1.1 + ROW * len(rows)))
    with rc_context(STYLE):
        for place, (_, found) in enumerate(rows):
            ax.barh(place, found["value"], height=0.6, color="C0", xerr=_around(found), ecolor="0.2")
            ax.annotate(f"{found['value']:.3g}", (_upper(found), place), xytext=(4, 0), textcoords="offset points",
                        va="center", fontsize=9)  # fmt: skip
        ax.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=9)
        ax.set_xlim(0, 1.15 * max(_upper(found) for _, found in rows))
        ax.invert_yaxis()
        ax.grid(False, axis="y")
    return figure


def _errors(points):
    return np.hstack([_around(point["seconds"]) for point in points])


def _around(found):
    """Return how far the interval reaches below and above the value, [2, 1]."""
    low, high = found.get("interval", [found["value"]] * 2)
    return np.array([[found["value"] - low], [high - found["value"]]])


def _upper(found):
    return found.get("interval", [found["value"]])[-1]


def _title(result):
    return f"{result['origin']['card']}, {result['origin']['clock']}"


def _alt(result, what, rows, form):
    return f"{_title(result)}, {what}: " + "; ".join(f"{name} {form(found['value'])}" for name, found in rows)
