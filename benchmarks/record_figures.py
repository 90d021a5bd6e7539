"""Figures of records: epochs by variant, copies with their fit, several devices, simulated against measured.

A chapter needs one line, and is right whether there are records or not: ``show(records.load("results"))``.
"""

from itertools import cycle

import numpy as np
from matplotlib import rc_context

from d2lmini.figures import plots
from d2lmini.figures.plots import LINES, STYLE, axes
from d2lmini.timing import human

MARKS = "osD^vP*X"  # told apart without colour
ROW = 0.42  # inches that a bar takes


def show(records):
    """Show in a notebook what `records.load` returned: a line on each card and its figures, or that there is none."""
    if not records:
        print("no results of a real card are recorded yet")
    for record in records:
        told = record["origin"]
        print(
            f"{told['cards']} × {told['card']}, {told['clock']} on {told['date']}: torch {told['torch']}, "
            f"CUDA {told['cuda']}, driver {told['driver']}, host {told['host_cpu']}"
        )
        for figure, alt in figures(record):
            plots.show(figure, alt)


def figures(record):
    """Yield each figure of a record with the text that describes it; parts without rows are left out."""
    title = f"{record['origin']['card']}, {record['origin']['clock']}"
    part = record["training"]
    what = f"seconds an epoch of {part['network']}, {part['images']:,} images, batches of {part['batch_size']}"
    yield from _bars(title, what, [(row["name"], row["seconds"]) for row in part["epochs"]])
    if record["copies"]["routes"]:
        yield _copies(title, record["copies"]["routes"])
    rows = [(f"{row['devices']} × {_busbw(row)}", row["seconds"]) for row in record["scaling"]["rows"]]
    yield from _bars(title, "seconds an epoch on several devices", rows)
    rows = [(row["name"], row["ratio"]) for row in record["simulated"]["rows"]]
    yield from _bars(title, "simulated ÷ measured seconds", rows, mark=1)


def _busbw(row):
    return f"(busbw {row['busbw']['value'] / 1e9:.3g} GB/s)" if "busbw" in row else ""


def _bars(title, what, rows, mark=None):
    """Yield a figure of one bar for each (name, quantity), the first on top, unless there is none; and its description.

    mark: where to draw a line that the bars are to be compared with.
    """
    if not rows:
        return
    figure, ax = axes(what, None, title, (7, 1.1 + ROW * len(rows)))
    upper = [found.get("interval", [found["value"]])[-1] for _, found in rows]
    with rc_context(STYLE):
        for place, (_, found) in enumerate(rows):
            ax.barh(place, found["value"], height=0.6, color="C0", xerr=_around(found), ecolor="0.2")
            ax.annotate(
                f"{found['value']:.3g}",
                (upper[place], place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        ax.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=9)
        ax.set_xlim(0, 1.15 * max([*upper, mark or 0]))
        ax.invert_yaxis()
        ax.grid(False, axis="y")
        if mark:
            ax.axvline(mark, color="0.3", linestyle="--", linewidth=1)
    yield figure, f"{title}, {what}: " + "; ".join(f"{name} {found['value']:.3g}" for name, found in rows)


def _copies(title, routes):
    """Return a figure of every route's copies with the line fitted to them, and its description."""
    figure, ax = axes("bytes", "seconds", title, (7, 4.4))
    told = []
    with rc_context(STYLE):
        for number, (row, mark, line) in enumerate(zip(routes, cycle(MARKS), cycle(LINES))):
            sizes = np.array([point["size"]["value"] for point in row["points"]])
            alpha, beta = row["alpha"]["value"], row["beta"]["value"]
            errors = np.hstack([_around(point["seconds"]) for point in row["points"]])
            ax.errorbar(
                sizes,
                [point["seconds"]["value"] for point in row["points"]],
                errors,
                fmt=mark,
                color=f"C{number % 10}",
                markersize=4,
                elinewidth=1,
            )
            label = f"{row['name']}: {human(alpha)} + bytes ÷ {beta / 1e9:.3g} GB/s"
            ax.plot(sizes, alpha + sizes / beta, line, color=f"C{number % 10}", linewidth=1, label=label)
            told.append(label)
        ax.set(xscale="log", yscale="log")
        ax.minorticks_off()
        figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    return figure, f"{title}: seconds of copies against bytes, with fitted lines: {'; '.join(told)}"


def _around(found):
    """Return how far the interval reaches below and above the value, [2, 1]."""
    low, high = found.get("interval", [found["value"]] * 2)
    return np.array([[found["value"] - low], [high - found["value"]]])
