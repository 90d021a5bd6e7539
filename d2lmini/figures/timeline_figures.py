"""Timelines of functions that ran on simulated GPUs, under one another and to one scale, with a legend."""

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure

from d2lmini import sim
from d2lmini.figures import plots
from d2lmini.timing import human

WIDTH, ROW, FRAME = 5.5, 0.24, 0.45  # inches: of the figure; the height of a row; what a title and its space take


def show_timelines(*functions):
    """Run each function on idle simulated GPUs, show their timelines in one figure, and return their `Trace`s.

    A panel is titled with the function's name, words in place of underscores, and the simulated time that it took.
    Raises RuntimeError without a clock.
    """
    traces = [_recorded(function) for function in functions]
    names = [function.__name__.replace("_", " ") for function in functions]
    plots.show(_drawn(names, traces), "; ".join(f"{name}, {trace}" for name, trace in zip(names, traces)))
    return traces


def _recorded(function):
    for device in range(torch.sim.device_count()):
        torch.sim.synchronize(device)
    with sim.trace() as trace:
        function()
    return trace


def _drawn(names, traces):
    rows = [len({(span.place, span.row) for span in trace.spans}) for trace in traces]
    with rc_context(plots.STYLE):
        figure = Figure(figsize=(WIDTH, 0.9 + sum(FRAME + ROW * count for count in rows)), layout="constrained")
        panels = figure.subplots(len(traces), 1, squeeze=False, height_ratios=[1.5 + count for count in rows])[:, 0]
        for panel, name, trace in zip(panels, names, traces):
            trace.draw(panel, until=max(trace.seconds for trace in traces))
            panel.set_title(f"{name}: {human(trace.seconds)}", fontsize=11, loc="left")
            panel.grid(axis="y", visible=False)
            if panel is not panels[-1]:
                panel.set_xlabel(None)
                panel.tick_params(labelbottom=False)
        kinds = {label: bar for panel in panels for bar, label in zip(*panel.get_legend_handles_labels())}
        figure.legend(kinds.values(), kinds, loc="outside upper left", ncols=2, frameon=False, fontsize=10.5)
    return figure
