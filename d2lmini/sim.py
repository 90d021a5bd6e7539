"""Another name for `simgpu`, so that ``from d2lmini import sim`` goes on working."""

import sys

import simgpu

sys.modules[__name__] = simgpu
