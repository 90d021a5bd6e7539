"""The time that a program reads on its rank: that of the simulated clock, from the moment at which the run began."""

import time

import simgpu
from simgpu.torch_glue.here import here

_UNITS = {"": 1, "_ns": 10**9}


def entries():
    """Yield (module, name, function) for everything in ``time`` that follows the simulated clock on a rank."""
    began = simgpu.now()
    for name in ("time", "perf_counter", "monotonic"):
        for suffix, unit in _UNITS.items():
            own = getattr(time, name + suffix)
            yield time, name + suffix, _simulated(own, own(), began, unit)


def _simulated(own, start, began, unit):
    def now():
        if here() is None:
            return own()
        passed = (simgpu.now() - began) * unit
        return start + (passed if unit == 1 else round(passed))

    now.__name__, now.__doc__ = own.__name__, own.__doc__
    return now
