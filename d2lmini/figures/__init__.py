"""Pictures and explorable figures of the chapters.

    plots               axes, curves and timelines as SVG
    widgets             explore: one figure with controls, plain HTML in the page, widgets in Jupyter
    tables              rows under headings: HTML in page and notebook, text elsewhere
    schedule_frames     a collective, step by step        reuse_frames      tilings and systolic arrays
    memory_figures      the memory hierarchy, measured
"""

from d2lmini.figures.plots import axes, show
from d2lmini.figures.reuse_frames import systolic_alt, systolic_array, tiling, tiling_alt
from d2lmini.figures.tables import table
from d2lmini.figures.widgets import choice, explore

__all__ = ["axes", "choice", "explore", "show", "systolic_alt", "systolic_array", "table", "tiling", "tiling_alt"]
