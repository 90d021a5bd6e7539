"""How torch learns of the device type ``sim``: names, a guard, hooks, kernels, and what `table` replaces.

All of it is done once in a process, by `register`, and cannot be undone: torch has no way back.
"""

import pkgutil
import sys
import warnings

import torch
from torch.optim.optimizer import _foreach_supported_types as optimizer_types
from torch.utils import _device, _foreach_utils, backend_registration

from simgpu.device import attention, copies, factories, guard, kernels, signals, unsupported
from simgpu.device.tensor import SimTensor
from simgpu.torch_glue import autocast, compiling, storages
from simgpu.torch_glue.table import PATCHES

_libraries = {}  # torch forgets the kernels of a library that is no more


def missing():
    """Return what this version of torch lacks for simulated GPUs, or None."""
    for owner, name in (
        (torch._C, "_acc"),
        (backend_registration, "_setup_privateuseone_for_python_backend"),
        (torch.autograd, "_engine_run_backward"),
        (torch, "AcceleratorError"),
        (torch._C, "_set_throw_on_mutable_data_ptr"),
    ):
        if not hasattr(owner, name):
            return name
    return None


def register(module):
    """Make ``sim`` a device type of torch, with `module` as ``torch.sim``; only once in a process."""

    class Hooks(torch._C._acc.PrivateUse1Hooks):
        is_available = is_built = has_primary_context = signals.undisturbed(lambda *_: True)

    backend_registration._setup_privateuseone_for_python_backend("sim", module, Hooks(), guard.Guard())
    for module in (factories, copies, kernels, attention, unsupported, autocast):
        module.register()
    torch.serialization.register_package(19, storages.tag, storages.restore)
    # As on CUDA, gradients are clipped and optimizers step over lists of tensors unless something else is asked for.
    for types in (_foreach_utils._foreach_supported_types, optimizer_types):
        types.append(SimTensor)
    # Python need not name the accelerator any more, but must here: without a name torch's kernels would ask for ours.
    warnings.filterwarnings("ignore", "The argument 'device' of Tensor.*pin.* is deprecated")
    _device._device_constructors()  # keeps torch's own functions, by which `with torch.device` knows them
    for patch in PATCHES:
        _replace(patch)
    compiling.teach()


def _replace(patch):
    owner, _, key = patch.owner.partition("/")
    if key:
        library = _libraries.setdefault(key, torch.library.Library(owner, "IMPL", key))
        library.impl(patch.name, patch.make(None))
        return
    owner = sys.modules.get(patch.owner) or pkgutil.resolve_name(patch.owner)
    own = getattr(owner, patch.name, None)
    if own is None and patch.since:
        return
    new = patch.make(own)
    setattr(owner, patch.name, new)
    builtin = torch.jit._builtins._find_builtin(own)
    if builtin is not None:
        torch.jit._builtins._register_builtin(new, builtin)  # so that torch.jit.script knows it too
