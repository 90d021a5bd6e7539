"""How torch learns of the device type ``sim``: names, a guard, hooks, autograd's engine, saving and loading.

All of it is done once a process, by `register`, and cannot be undone: torch has no way back.
"""

import torch
from torch.utils import backend_registration

from d2lmini.sim.device import copies_and_factories, guard, interrupts, storage, unsupported
from d2lmini.sim.device.tensor import SimTensor
from d2lmini.sim.patches import accelerator, autocast, gradients, lazy, parallel, pinning, sharing, standins


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
    """Make ``sim`` a device type of torch, with `module` as ``torch.sim``."""

    class Hooks(torch._C._acc.PrivateUse1Hooks):
        is_available = is_built = has_primary_context = interrupts.undisturbed(lambda *_: True)

    backend_registration._setup_privateuseone_for_python_backend("sim", module, Hooks(), guard.Guard())
    copies_and_factories.register()
    unsupported.register()
    storage.register()
    sharing.register()
    lazy.register()
    gradients.register()
    pinning.register()
    accelerator.register()
    parallel.register()
    standins.register()
    autocast.register()
    _run_backward_on_one_thread()
    torch.utils._foreach_utils._foreach_supported_types.append(SimTensor)


def _run_backward_on_one_thread():
    """Let autograd run on the calling thread: torch's guard for Python devices tells the engine of one device only."""
    run = torch.autograd.graph._engine_run_backward
    with torch.inference_mode(False), torch.enable_grad():
        one = torch.ones((), device="cpu")
        leaf = one.clone().requires_grad_()
        copy = leaf.clone()

    def engine_run_backward(roots, grads, *args, **kwargs):
        grads = gradients.placed(roots, grads)
        try:
            with torch.autograd.set_multithreading_enabled(False):
                return run(roots, grads, *args, **kwargs)
        except BaseException as raised:
            # What was still to be done stays in the thread's queue, and holds its tensors, until backward runs again.
            run((copy,), (one,), True, False, (leaf,), allow_unreachable=False, accumulate_grad=False)
            error = guard.lost(raised)
            if error is None:
                raise
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context  # what was handled when it was raised first, not what the caller handles
            # The traceback holds this frame and all that called it: a circle that would keep their tensors.
            del error, context

    torch.autograd.graph._engine_run_backward = torch.autograd._engine_run_backward = engine_run_backward
