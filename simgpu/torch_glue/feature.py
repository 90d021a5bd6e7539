"""What a row of the table of features says, and whether this torch has the names that it needs.

Names of torch are dotted, from the module on. ``name@2.13``: torch has the name from 2.13 on, and an older one does
without it; ``name@2.13-2.14``: a newer one too. ``name?``: builds of torch may lack it, and it is made there.
``name*``: the same object under that name in other modules, which have imported it, is replaced too.
``aten::name/CPU``: the kernel of an operation under a dispatch key.
"""

import contextlib
import functools
import importlib
import sys
from dataclasses import dataclass, field

import torch

OLDEST, NEWEST = (2, 11), (2, 15)  # the versions of torch that were tried
TRIED = " to ".join(".".join(map(str, numbers)) for numbers in (OLDEST, NEWEST))
VERSION = torch.__version__.partition("+")[0]
NUMBERS = tuple(int(part) for part in VERSION.split(".")[:2])


@dataclass(frozen=True)
class Feature:
    """A row of the table `features.FEATURES`.

    Args:
        name: As error messages say it.
        where: "GPUs", "GPUs under CUDA's name" or "ranks": on which simulated ones the feature is meant.
        trigger: The module of torch whose loading installs the feature; `enable` does where torch has loaded it.
        core: "enable" or "spawn", which cannot do without the feature; "" where everything else goes on without it.
        needs: Names of torch that the feature's code uses, besides those of the fields below.
        always: {name of torch: "file.function"}, from `enable` to `disable`; of core rows for good. The function, in
            that file of `torch_glue`, is given what has the name and returns what takes its place.
        in_spawn: The same, while simulated ranks run.
        own: {name of torch: "file.function"}, variables that each rank has for itself, as a process would. The function
            is given the value outside of ranks and returns a new rank's.
        asked: {function of torch that gets what each rank has for itself: the one that sets it}.
        once: "file.function", called once a process, for what torch cannot take back.
        around_spawn: "file.function", a context manager that is open while ranks run.
        in_rank: "file.function", called in the thread of each rank.
        entries: Names by which programs use the feature. Where a need is missing they raise, and say which.
    """

    name: str
    where: str = "GPUs"
    trigger: str = "torch"
    core: str = ""
    needs: str = ""
    always: dict = field(default_factory=dict)
    in_spawn: dict = field(default_factory=dict)
    own: dict = field(default_factory=dict)
    asked: dict = field(default_factory=dict)
    once: str = ""
    around_spawn: str = ""
    in_rank: str = ""
    entries: str = ""

    def names(self):
        """Return all names of torch that the feature needs, with their marks, each once."""
        own = [*self.own, *self.asked, *self.asked.values()]
        return list(dict.fromkeys([*self.needs.split(), *self.always, *self.in_spawn, *own]))


def find(name):
    """Return the object that holds a dotted name of a loaded module, and the last part of the name.

    Raises:
        AttributeError: There is none.
    """
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        owner = sys.modules.get(".".join(parts[:length]))
        if owner is not None:
            return functools.reduce(_part, parts[length:-1], owner), parts[-1]
    raise AttributeError(f"{parts[0]} is not loaded")


def _part(owner, name):
    try:
        return getattr(owner, name)
    except AttributeError:  # a module that nobody has loaded yet
        with contextlib.suppress(ImportError):
            return importlib.import_module(f"{getattr(owner, '__name__', '')}.{name}")
        raise


def bare(name):
    """Return a name of the table without its marks, or None where this torch is older or newer than the name."""
    name, _, span = name.rstrip("?*").partition("@")
    since, _, until = span.partition("-")
    if since and tuple(map(int, since.split("."))) > NUMBERS:
        return None
    return None if until and tuple(map(int, until.split("."))) < NUMBERS else name


def is_there(name):
    """Return whether this torch has a name of the table."""
    if name.startswith("aten::"):
        return hasattr(torch.ops.aten, name.removeprefix("aten::").partition("/")[0])
    try:
        owner, last = find(name)
    except AttributeError:
        return False
    if isinstance(owner, type):  # not by hasattr: every class has its own class's __call__
        return any(last in vars(base) for base in owner.__mro__)
    return hasattr(owner, last)


def missing(feature):
    """Return the first name that the feature needs and this torch has not, or None."""
    needed = [bare(name) for name in feature.names() if not name.endswith("?")]
    return next((name for name in needed if name is not None and not is_there(name)), None)


def refusal(feature, lacking):
    """Return what is said where a feature is used that lacks a name of torch."""
    if feature.core == "enable":
        return f"simulated GPUs need torch 2.11 or later: torch {VERSION} has no {lacking}"
    package = lacking.partition(".")[0]
    version = VERSION if package == "torch" else getattr(sys.modules.get(package), "__version__", "")
    return f"{feature.name} is not available on simulated {feature.where}: {package} {version} has no {lacking}"
