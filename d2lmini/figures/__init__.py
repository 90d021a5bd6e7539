"""Pictures and explorable figures of the chapters.

plots               axes and curves as SVG                timeline_figures  functions on simulated GPUs
widgets             explore: one figure with controls, plain HTML in the page, widgets in Jupyter
drawings            hand-made SVG in the page's colours
questions           ask, predict: commit to an answer, then read why
tables              rows under headings: HTML in page and notebook, text elsewhere
schedule_frames     a collective, step by step        reuse_frames      tilings and systolic arrays
layout_frames       layouts of a model, against the fastest that a search finds
memory_figures      the memory hierarchy, measured        copy_figures      copies by size
error_figures       simulated over published, as dots about one
"""

from d2lmini.figures.drawings import drawing
from d2lmini.figures.plots import axes, show
from d2lmini.figures.questions import ask, predict
from d2lmini.figures.reuse_frames import systolic_alt, systolic_array, tiling, tiling_alt
from d2lmini.figures.tables import table
from d2lmini.figures.timeline_figures import (
    exposed_intervals,
    joined,
    part,
    read_trace,
    show_timelines,
    show_traces,
    timelines,
)
from d2lmini.figures.widgets import choice, explore

__all__ = [
    "ask",
    "axes",
    "choice",
    "drawing",
    "explore",
    "exposed_intervals",
    "joined",
    "part",
    "predict",
    "read_trace",
    "show",
    "show_timelines",
    "show_traces",
    "systolic_alt",
    "systolic_array",
    "table",
    "tiling",
    "tiling_alt",
    "timelines",
]
