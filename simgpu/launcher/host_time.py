"""The time that a program reads on its rank: that of the simulated clock, from the moment at which the run began."""

import sys
import time
import timeit

import simgpu
from simgpu.torch_glue.here import here

_UNITS = {"": 1, "_ns": 10**9}
_REAL = sys.stdlib_module_names - {"logging", "timeit"}  # which wait for something until a time has come


def entries():
    """Yield (module, name, function) for everything in ``time`` that follows the simulated clock on a rank."""
    began = simgpu.now()
    for name in ("time", "perf_counter", "monotonic"):
        for suffix, unit in _UNITS.items():
            own = getattr(time, name + suffix)
            now = _simulated(own, own(), began, unit)
            yield time, name + suffix, now
            if own is timeit.default_timer:
                yield timeit, "default_timer", now


def _simulated(own, start, began, unit):
    def now():
        if here() is None or sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] in _REAL:
            return own()
        passed = (simgpu.now() - began) * unit
        return start + (passed if unit == 1 else round(passed))

    now.__name__, now.__doc__ = own.__name__, own.__doc__
    return now
