"""Which features this torch has the names for: what `simgpu.features` returns."""

import contextlib
import sys
from importlib import import_module

from simgpu.torch_glue.feature import TRIED, VERSION, bare, missing, refusal
from simgpu.torch_glue.features import FEATURES


class Report:
    """The table of features with what this torch has of them.

    Attributes:
        rows: Pairs of a feature's name and "yes", or "no" with the reason.
    """

    def __init__(self):
        self.rows = [(feature.name, _status(feature)) for feature in FEATURES]

    def __repr__(self):
        """Return the table as text."""
        width = max(len(name) for name, _ in self.rows)
        lines = [f"{name:<{width}}  {status}" for name, status in self.rows]
        return "\n".join([f"torch {VERSION}, tried with {TRIED}", *lines])


def _status(feature):
    with contextlib.suppress(ImportError):  # a library that is not installed, a room that this torch has not
        import_module(feature.trigger)
    if feature.trigger not in sys.modules:
        return f"no: there is no {feature.trigger}"
    lacking = missing(feature)
    if lacking:
        return f"no: {refusal(feature, lacking).partition(': ')[2]}"
    since = [name.rstrip("?*").partition("@") for name in feature.names() if bare(name) is None]
    return "yes" + "".join(f", without {name} of torch {number}" for name, _, number in since)
