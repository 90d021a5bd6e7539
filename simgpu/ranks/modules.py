"""The program's own modules, of which each rank has its variables for itself, as a process would.

    imported by a rank            each rank imports its own copy: `sys.modules` holds those of the rank that runs
    imported before the ranks     as after a fork: their variables, those of their classes and objects, and what their
                                  small lists, dicts and sets hold, are put aside at a change of ranks

A program's module is one that is not installed: not Python's, nor torch's, nor in site-packages, nor of this package.
Of a notebook the cells' own variables are shared, so that ranks can leave results there.
"""

import builtins
import contextlib
import enum
import importlib
import operator
import os
import sys
import sysconfig
import types
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path

import torch

# Installed libraries that keep one state a process in their modules, so that each rank imports its own.
STATEFUL = {"apex", "colossalai", "deepspeed", "fairscale", "fairseq", "fairseq2", "hydra", "megatron", "nanotron"}
_LARGEST = 256  # elements of a list, dict or set; a larger one is data, not state
_paths = sysconfig.get_paths()
_INSTALLED = (
    *{_paths[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")},
    *(str(path) + os.sep for path in (Path(torch.__file__).parents[1], Path(__file__).parents[1])),
    "<frozen",
)
_PLAIN = (list, dict, set, deque, defaultdict, OrderedDict, Counter)
_locks = importlib._bootstrap
_installed = {}  # the specs of modules that have been found to be installed, of which there are thousands, by name


def is_programs(name, module):
    """Return whether a module is the program's own, not an installed one."""
    spec = getattr(module, "__spec__", None)
    if spec is not None and _installed.get(name) is spec:
        return False
    programs = _is_programs(name, module, spec)
    if not programs:
        _installed[name] = spec
    return programs


def _is_programs(name, module, spec):
    if name == "__main__":
        return getattr(module, "__file__", None) is not None
    if name.partition(".")[0] in STATEFUL:
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        if spec is not None and spec.origin in ("built-in", "frozen"):
            return False
        places = getattr(getattr(module, "__path__", None), "_path", None)  # of a namespace package
        file = places[0] if places else None
        if file is None:
            return spec is None and type(module) is types.ModuleType and not name.startswith(("torch", "simgpu", "_"))
    return not (str(file).startswith(_INSTALLED) or "site-packages" in str(file) or "dist-packages" in str(file))


def is_imported(depth=2):
    """Return whether the caller at `depth` is an installed module that is being imported, which ranks share."""
    caller = sys._getframe(depth)
    name = caller.f_globals.get("__name__", "")
    return caller.f_code.co_name == "<module>" and not is_programs(name, sys.modules.get(name))


class Modules:
    """What one process has of the program's modules; `leave` and `enter` put it aside and back, inside `split` only."""

    shared = frozenset()  # names in sys.modules when the ranks started, other than __main__
    variables = ()  # of those among them that are the program's
    _own_names, _mark = set(), None  # names that ranks have imported; what sys.modules looked like at the last look

    def __init__(self):
        self.leave()

    @classmethod
    @contextlib.contextmanager
    def split(cls):
        """Let processes that are made inside have their own modules."""
        before = cls.shared, cls.variables, cls._own_names, cls._mark
        found = {name: module for name, module in list(sys.modules.items()) if module and is_programs(name, module)}
        cls.shared, cls.variables = frozenset(sys.modules) - {"__main__"}, list(_walk(found))
        cls._own_names, cls._mark = {"__main__"}, None
        try:
            yield
        finally:
            cls.shared, cls.variables, cls._own_names, cls._mark = before

    def fresh(self):
        """Forget what the process that made this one has imported since `split`."""
        self._own = {"__main__": sys.modules["__main__"]}
        self._locks = {}

    def leave(self):
        """Put aside."""
        cls, mark = Modules, (len(sys.modules), next(reversed(sys.modules)))
        if mark != cls._mark:
            cls._mark = mark
            new = sys.modules.keys() - cls.shared - cls._own_names
            cls._own_names.update(name for name in new if is_programs(name, sys.modules[name]))
        self._own = {name: sys.modules[name] for name in cls._own_names if name in sys.modules}
        self._locks = _locks._module_locks  # else a rank that waits in the midst of an import would hold up the others
        self._values = [variables.read() for variables in cls.variables]

    def enter(self):
        """Put back."""
        for name in Modules._own_names:
            if name in self._own:
                sys.modules[name] = self._own[name]
            else:
                sys.modules.pop(name, None)
        _locks._module_locks = self._locks
        for variables, values in zip(Modules.variables, self._values):
            variables.write(values)


class Variables:
    """What a module, a class, an object, a list, dict or set holds; `values` are those of one process."""

    def __init__(self, owner, read, put):
        self.owner, self._read, self._put = owner, read, put

    def read(self):
        """Return what is held."""
        return self._read(self.owner)

    def write(self, held):
        """Hold what was read."""
        now = self._read(self.owner)
        if not _same(now, held) or (isinstance(held, dict) and not _same(now.values(), held.values())):
            self._put(self.owner, held)


def _same(some, others):
    """Return whether both have the same objects in the same order; none is asked whether it equals another."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _set_items(owner, held):
    for name in owner.keys() - held.keys():
        if not _is_dynamos(name):
            del owner[name]
    for name, value in held.items():
        if (name not in owner or owner[name] is not value) and not _is_dynamos(name):
            owner[name] = value


def _is_dynamos(name):
    """Return whether torch.compile has put a variable into a program's module, for code that all ranks keep."""
    return isinstance(name, str) and name.startswith("__") and not name.endswith("__")


def _set_attributes(owner, held):
    for name in vars(owner).keys() - held.keys():
        type.__delattr__(owner, name)
    for name, value in held.items():
        if vars(owner).get(name, held) is not value:
            type.__setattr__(owner, name, value)


def _set_elements(owner, held):
    owner.clear()
    (owner.update if isinstance(owner, set) else owner.extend)(held)


def _walk(modules):
    """Yield `Variables` for modules, their classes, objects of these, and small plain containers; each once."""
    names, seen = set(modules), set()
    waiting = [module.__dict__ for module in modules.values()]
    for one in waiting:  # grows meanwhile
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, type):
            yield Variables(one, lambda owner: dict(vars(owner)), _set_attributes)
            inside = vars(one).values()
        elif isinstance(one, dict):
            yield Variables(one, dict.copy, _set_items)
            inside = one.values()
        else:
            yield Variables(one, list, _set_elements)
            inside = one
        for value in list(inside):
            kind = type(value)
            if kind in _PLAIN and len(value) <= _LARGEST and value is not builtins.__dict__:
                waiting.append(value)
            elif isinstance(value, type):  # those of enums are constants
                if value.__module__ in names and not issubclass(value, enum.Enum):
                    waiting.append(value)
            elif kind.__module__ in names and type(getattr(value, "__dict__", None)) is dict:
                waiting.append(value.__dict__)
