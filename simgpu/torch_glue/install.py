"""Puts the rows of `features` in place and takes them away again: nothing else sets attributes of torch's objects.

    enable ──► what torch has loaded              spawn ──► in_spawn, own        an import ──► what waits for it
    disable ─► what was there before                and what was there before      (also inside a rank)

A row that lacks a name of torch is left out whole: its entries then raise one line, and all else goes on.
"""

import contextlib
import copy
import functools
import sys
import warnings
from importlib import import_module
from typing import Any, NamedTuple

import torch

from simgpu.device.state import state
from simgpu.torch_glue.feature import NEWEST, NUMBERS, TRIED, VERSION, bare, find, is_there, missing, refusal
from simgpu.torch_glue.features import CORE, FEATURES
from simgpu.torch_glue.here import here
from simgpu.torch_glue.redirect import is_function_of, original, redirect

_INHERITED = object()


class Variable(NamedTuple):
    """A variable that each rank has for itself: an attribute; what a rank's is at first; what it was outside ranks."""

    owner: Any
    name: str
    new: Any
    outside: Any


OWN = []  # the `Variable`s of all features that have been installed
ASKED = []  # (get, set): functions for what else each rank has for itself
IN_RANK = []  # functions to be called in the thread of each rank
copied = copy.copy


def emptied(value):
    """Return an empty object of the same type."""
    return type(value)()


class _Installed:
    """What is in place. always, in_spawn: stacks that put back what was there, None where nothing is replaced."""

    def __init__(self):
        self.always = self.in_spawn = None
        self.on, self.off = [], {}  # off: {name of a feature: name that is missing}
        self.once, self.warned = set(), False


_installed = _Installed()


def require(name):
    """Raise RuntimeError unless the feature of that name is in place."""
    feature = next(feature for feature in FEATURES if feature.name == name)
    if feature.name in _installed.off:
        raise RuntimeError(refusal(feature, _installed.off[feature.name]))


# -- enable and disable ----------------------------------------------------------------------------------------------


def enable():
    """Install what torch has loaded, and the rest when it is loaded; doing it again changes nothing.

    Raises:
        RuntimeError: This torch lacks what no simulated GPU can do without; nothing is changed then.
    """
    if _installed.always is not None:
        return
    for feature in CORE:
        if feature.core == "enable" and missing(feature):
            raise RuntimeError(refusal(feature, missing(feature)))
    if NUMBERS > NEWEST and not _installed.warned:
        _installed.warned = True
        warnings.warn(
            f"simgpu has been tried with torch {TRIED}, and this is {VERSION}: simgpu.features() tells what it found",
            stacklevel=4,
        )
    _installed.always = contextlib.ExitStack()
    for feature in FEATURES:
        if feature.trigger in sys.modules:
            _install(feature)
    sys.meta_path.insert(0, _FINDER)
    _installed.always.callback(sys.meta_path.remove, _FINDER)


def disable():
    """Put back what `enable` replaced, except in the core rows.

    torch cannot take back the device type's name, and without these rows it would end the process, or answer for a
    real accelerator, when it is asked about that name.
    """
    if _installed.always is not None:
        _installed.always.close()
        _installed.always, _installed.on, _installed.off = None, [], {}


@contextlib.contextmanager
def in_spawn():
    """Let torch be as ranks need it inside, and as it was afterwards. Raises RuntimeError where it cannot."""
    require("process groups")
    with contextlib.ExitStack() as stack:
        _installed.in_spawn = stack
        stack.callback(setattr, _installed, "in_spawn", None)
        for feature in list(_installed.on):
            _begin_spawn(feature, stack)
        yield


def _install(feature):
    lacking = missing(feature)
    if lacking:
        _installed.off[feature.name] = lacking
        for name in feature.entries.split():
            if is_there(bare(name)):
                _replace(_installed.always, name, functools.partial(_refusing, feature, refusal(feature, lacking)))
        return
    _installed.on.append(feature)
    stack = _installed.always
    if feature.core == "enable":
        if feature.name in _installed.once:
            return
        stack = contextlib.ExitStack()  # that nobody closes: these stay as long as the device type's name
    if feature.name not in _installed.once:  # ranks keep what they have for themselves by its place in the lists
        _installed.once.add(feature.name)
        if feature.once:
            _named(feature.once)()
        _share_out(feature)
    for name, maker in feature.always.items():
        _replace(stack, name, _named(maker))
    if _installed.in_spawn is not None:
        _begin_spawn(feature, _installed.in_spawn)


def _share_out(feature):
    """Let each rank have for itself what the feature's row says; so does the one that is running, if any."""
    for name, maker in feature.own.items():
        owner, last = find(bare(name))
        variable = Variable(owner, last, _named(maker), getattr(owner, last))
        OWN.append(variable)
        if here() is not None:
            setattr(owner, last, variable.new(variable.outside))
    for pair in feature.asked.items():
        ASKED.append([getattr(*find(name)) for name in pair])
    if feature.in_rank:
        IN_RANK.append(_named(feature.in_rank))
        if here() is not None:
            IN_RANK[-1]()


def _begin_spawn(feature, stack):
    if feature.around_spawn:
        stack.enter_context(_named(feature.around_spawn)())
    for name, maker in feature.in_spawn.items():
        _replace(stack, name, _named(maker))


# -- replacing -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replaced(entries):
    """Replace names inside, and put back what was there; entries: (owner, name, what takes its place) of each."""
    with contextlib.ExitStack() as stack:
        for owner, name, new in list(entries):
            _set(stack, owner, name, new)
        yield


def _named(maker):
    """Return the function that the table names "file.function"."""
    file, _, function = maker.partition(".")
    return getattr(import_module(f"simgpu.torch_glue.{file}"), function)


def _replace(stack, marked, maker):
    """Put what `maker` returns of the object of that name in its place until `stack` is closed."""
    name = bare(marked)
    if name is None:
        return
    if name.startswith("aten::"):
        operation, _, key = name.removeprefix("aten::").partition("/")
        library = torch.library.Library("aten", "IMPL", key)
        library.impl(operation, maker(None))
        stack.callback(library._destroy)
        return
    owner, last = find(name)
    own = getattr(owner, last, None)
    new = maker(original(owner, last))
    _set(stack, owner, last, new)
    if marked.endswith("*"):
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(last) is own:
                _set(stack, module, last, new)


def _set(stack, owner, name, new):
    own = getattr(owner, name, None)
    if is_function_of(owner, own) and callable(new):
        redirect(stack, own, new)
    stack.callback(_put_back, owner, name, vars(owner).get(name, _INHERITED))
    setattr(owner, name, new)
    builtin = torch.jit._builtins._find_builtin(own) if callable(own) else None
    if builtin is not None:
        torch.jit._builtins._register_builtin(new, builtin)  # so that torch.jit.script knows it too


def _put_back(owner, name, old):
    delattr(owner, name) if old is _INHERITED else setattr(owner, name, old)


def _concerns(where):
    if where == "ranks":
        return here() is not None
    return state.as_cuda if where == "GPUs under CUDA's name" else state.gpus


def _refusing(feature, sentence, own):
    @functools.wraps(own)
    def refuse(*args, **options):
        if _concerns(feature.where):
            raise RuntimeError(sentence)
        return own(*args, **options)

    return refuse


# -- imports ---------------------------------------------------------------------------------------------------------


class _Finder:
    """Stands before Python's own finders, and installs features as soon as their trigger has been loaded."""

    def __init__(self):
        self._triggers = {feature.trigger for feature in FEATURES}

    def find_spec(self, name, path=None, target=None):
        """Return the module's own way of being loaded, followed by ours; None for a module that needs nothing."""
        if name not in self._triggers and not name.startswith("torch."):
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if hasattr(spec and spec.loader, "exec_module"):
            spec.loader.exec_module = functools.partial(_load, spec.loader.exec_module)
        return spec


def _load(own, module):
    # What takes dist.group.WORLD for an argument's default would keep the group of the rank that loads it.
    with import_module("simgpu.torch_glue.c10d").outside() if here() else contextlib.nullcontext():
        own(module)
    for feature in FEATURES:
        if feature.trigger == module.__name__ and _installed.always is not None:
            _install(feature)


_FINDER = _Finder()
