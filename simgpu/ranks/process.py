"""What a rank would have for itself if it were a process: put aside while other ranks run, as an operating system does.

torch, Python and numpy keep this in variables of their modules. A rank that goes on finds them as it left them. What
else a process has, ranks share: the current directory, `torch.backends`, the variables of all other modules.
"""

import os
import random
import sys
import warnings
from copy import copy
from types import SimpleNamespace

import torch
from torch.distributed import distributed_c10d
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.fsdp._debug_utils import SimpleProfiler
from torch.distributed.tensor import DTensor, _random
from torch.nn import functional

from simgpu.device.state import state
from simgpu.ranks.tracker import Tracker

try:
    import numpy
except ImportError:  # torch does without, and so do simulated ranks
    numpy = None
try:
    from torch.distributed.tensor.experimental._context_parallel import _sharding_rules as attention_rules
except ImportError:  # older torch has none
    attention_rules = SimpleNamespace(_cp_strategy_contexts={})

VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
)
_texts = os.environ._data  # as the operating system has them: `os.environ` decodes and encodes them every time
_KEYS = [os.environ.encodekey(name) for name in VARIABLES]
_dispatcher = DTensor._op_dispatcher


def no_groups():
    """Return what stands for torch's record of its process groups, empty."""
    return SimpleNamespace(
        default_pg=None,
        pg_map={},
        pg_names={},
        pg_group_ranks={},
        pg_backend_config={},
        comms=[],
        group_count=0,
        tags_to_pg={},
        pg_to_tag={},
        pg_coalesce_state={},
    )


def _same(value):
    return value


# What each process has for itself, and what a new one makes of the value that is there, as after a fork.
_propagator = _dispatcher.sharding_propagator
_hooked = [sys.modules[name] for name in ("torch.nn.modules.module", "torch.optim.optimizer")]
_HELD = (
    (state, "gpus", _same),  # the first, since `Process` is told a new one's
    (distributed_c10d, "_world", lambda _: no_groups()),
    (_random, "_rng_tracker", lambda _: Tracker()),
    (state, "keep_host_values", lambda _: False),
    (SimpleProfiler, "profiling", lambda _: set()),  # what FSDP1 is timing
    *((SavePlanner, name, lambda _: {}) for name in vars(SavePlanner) if name.startswith("_cached_")),  # saved last
    # `context_parallel` changes these, in one rank while another is still outside.
    (attention_rules, "_cp_strategy_contexts", lambda _: {}),
    (_propagator, "op_strategy_funcs", dict),
    (_propagator, "op_to_schema_info", dict),
    # What a rank's FlopCounterMode or CommDebugMode hangs into all modules, where other ranks' modules would call it.
    *((module, name, copy) for module in _hooked for name in vars(module) if name.startswith("_global_")),
    (warnings, "filters", list),
    (warnings, "showwarning", _same),
    (warnings, "_showwarnmsg_impl", _same),
    (functional, "scaled_dot_product_attention", _same),
    (sys, "excepthook", _same),
    (sys, "stdout", _same),
    (sys, "stderr", _same),
)

# What functions get and set. Of `sdpa_kernel` and `detect_anomaly` a rank may take leave while others are inside.
_ASKED = (
    (torch.default_generator.get_state, torch.default_generator.set_state),
    (random.getstate, random.setstate),
    (torch.get_default_dtype, torch._C._set_default_dtype),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda flags: torch.set_anomaly_enabled(*flags),
    ),
    *(
        (getattr(torch._C, f"_get_{name}_sdp_enabled"), getattr(torch._C, f"_set_sdp_use_{name}"))
        for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    ),
)


def _shared_by_instances():
    """Return the classes of Hugging Face's accelerate that keep one state a process for all their instances."""
    accelerate = sys.modules.get("accelerate.state")
    names = ("PartialState", "AcceleratorState", "GradientState") if accelerate else ()
    return [getattr(accelerate, name) for name in names if hasattr(accelerate, name)]


class Process:
    """The variables of one process, at first as the thread that makes this object sees them, as after a fork.

    environment: what torchrun would set for a new one, {name: text}, which has no process groups yet; gpus: those of
    its node, the first of which is number `first` of all.
    """

    def __init__(self, environment=None, gpus=None, first=0):
        self.leave()
        if environment is not None:
            self._environment.update(zip(_KEYS, [os.environ.encodevalue(environment[name]) for name in VARIABLES]))
            self._first, self._shared = first, {}
            self._held = [gpus, *(new(value) for (*_, new), value in zip(_HELD[1:], self._held[1:]))]
            if numpy:
                self._numpy = numpy.random.MT19937()
                self._numpy.state = numpy.random.get_state(legacy=False)

    def leave(self):
        """Put the variables aside."""
        self._held = [getattr(owner, name) for owner, name, _ in _HELD]
        self._asked = [ask() for ask, _ in _ASKED]
        self._numpy = numpy and numpy.random.get_bit_generator()
        # `loss_parallel` changes these in place, and `context_parallel` puts back those of all ranks.
        self._handlers = _dispatcher._custom_op_handlers.copy()
        self._first = getattr(state.clock, "first", 0)
        self._environment = _texts.copy()
        self._shared = {owner: owner._shared_state for owner in _shared_by_instances()}

    def enter(self):
        """Put them back."""
        others = warnings.filters
        for (owner, name, _), value in zip(_HELD, self._held):
            setattr(owner, name, value)
        if others != warnings.filters:
            with warnings.catch_warnings():  # tells Python, which remembers what they let through, that they are others
                pass
        for (_, put), value in zip(_ASKED, self._asked):
            put(value)
        if numpy:
            numpy.random.set_bit_generator(self._numpy)
        _dispatcher._custom_op_handlers = self._handlers
        if hasattr(state.clock, "first"):
            state.clock.first = self._first
        _set_environment(zip(_KEYS, map(self._environment.get, _KEYS)))
        if _texts != self._environment:  # seldom
            _set_environment({**dict.fromkeys(_texts), **self._environment}.items())
        for owner in _shared_by_instances():
            owner._shared_state = self._shared.setdefault(owner, {})


def _set_environment(pairs):
    """Set variables of the environment, (key, text); a text of None takes one away."""
    for key, text in pairs:
        if text is None and key in _texts:
            del _texts[key]
            os.unsetenv(key)
        elif _texts.get(key) != text:
            _texts[key] = text
            os.putenv(key, text)
