"""What a rank would have for itself if it were a process: put aside while other ranks run, as an operating system does.

torch, Python and numpy keep this in variables of their modules. A rank that goes on finds them as it left them. The
program's own modules: see `modules`. What else a process has, ranks share: the current directory, `torch.backends`, the
variables of all other installed modules.
"""

import logging
import multiprocessing.context
import os
import random
import sys
import warnings

import torch
from torch.nn import functional

from simgpu.accounting import allocator
from simgpu.device.state import state
from simgpu.ranks import logs
from simgpu.ranks.modules import Modules
from simgpu.torch_glue.install import ASKED, IN_RANK, OWN

try:
    import numpy
except ImportError:  # torch does without, and so do simulated ranks
    numpy = None

_texts = os.environ._data  # as the operating system has them: `os.environ` decodes and encodes them every time


def _same(value):
    return value


# What each process has for itself, and what a new one makes of the value that is there, as after a fork. What torch
# keeps in names that are not public stands with the features that need it, in `torch_glue.features`.
_HELD = (
    (state, "gpus", _same),  # the first, since `Process` is told a new one's
    (allocator.Running, "process", lambda _: allocator.Process()),  # whose memory is counted
    (state, "keep_host_values", lambda _: False),
    (warnings, "filters", list),
    (warnings, "showwarning", _same),
    (warnings, "_showwarnmsg_impl", _same),
    (functional, "scaled_dot_product_attention", _same),
    (sys, "excepthook", _same),
    (sys, "argv", list),
    (logging.root.manager, "disable", _same),
    (multiprocessing.context._default_context, "_actual_context", _same),  # the start method
    (os, "environ", _same),  # a program may put a copy in its place
    (sys, "stdout", _same),
    (sys, "stderr", _same),
)

# What functions get and set. Of `detect_anomaly` a rank may take leave while others are inside.
_ASKED = (
    (torch.default_generator.get_state, torch.default_generator.set_state),
    (random.getstate, random.setstate),
    (torch.get_default_dtype, torch.set_default_dtype),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda flags: torch.set_anomaly_enabled(*flags),
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
        self._is_rank, self._started, self._modules = environment is not None, 0, Modules()
        self.leave()
        if self._is_rank:
            encode = os.environ.encodevalue
            self._environment.update({os.environ.encodekey(name): encode(environment[name]) for name in environment})
            self._first, self._shared = first, {}
            self._modules.fresh()
            self._held = [gpus, *(new(value) for (*_, new), value in zip(_HELD[1:], self._held[1:]))]
            self._own = [variable.new(value) for variable, value in zip(OWN, self._own)]
            if numpy:
                self._numpy = numpy.random.MT19937()
                self._numpy.state = numpy.random.get_state(legacy=False)

    def filters(self):
        """Return the list of the filters of warnings of a process that does not run."""
        return self._held[next(place for place, (_, name, _) in enumerate(_HELD) if name == "filters")]

    def leave(self):
        """Put the variables aside."""
        self._held = [getattr(owner, name) for owner, name, _ in _HELD]
        self._own = [getattr(variable.owner, variable.name) for variable in OWN]
        self._asked = [ask() for ask, _ in (*_ASKED, *ASKED)]
        self._numpy = numpy and numpy.random.get_bit_generator()
        self._first = getattr(state.clock, "first", 0)
        self._environment = _texts.copy()
        self._shared = {owner: owner._shared_state for owner in _shared_by_instances()}
        self._modules.leave()
        self._logs = logs.leave()

    def enter(self):
        """Put them back."""
        others = warnings.filters
        for (owner, name, _), value in zip(_HELD, self._held):
            setattr(owner, name, value)
        if others != warnings.filters:
            with warnings.catch_warnings():  # tells Python, which remembers what they let through, that they are others
                pass
        for variable in OWN[len(self._own) :]:  # of what another rank has loaded meanwhile
            self._own.append(variable.new(variable.outside) if self._is_rank else variable.outside)
        for variable, value in zip(OWN, self._own):
            setattr(variable.owner, variable.name, value)
        for (_, put), value in zip((*_ASKED, *ASKED), self._asked):
            put(value)
        if numpy:
            numpy.random.set_bit_generator(self._numpy)
        if hasattr(state.clock, "first"):
            state.clock.first = self._first
        if _texts != self._environment:
            _set_environment({**dict.fromkeys(_texts), **self._environment}.items())
        for owner in _shared_by_instances():
            owner._shared_state = self._shared.setdefault(owner, {})
        self._modules.enter()
        logs.enter(self._logs)
        while self._is_rank and self._started < len(IN_RANK):
            IN_RANK[self._started]()
            self._started += 1


def _set_environment(pairs):
    """Set variables of the environment, (key, text); a text of None takes one away."""
    for key, text in pairs:
        if text is None and key in _texts:
            del _texts[key]
            os.unsetenv(key)
        elif _texts.get(key) != text:
            _texts[key] = text
            os.putenv(key, text)
