"""Backward on simulated GPUs: autograd's engine on one thread, errors that survive it, gradients on their devices.

As on CUDA a gradient is on the device of the tensor that it belongs to; one without dimensions is moved there.
torch leaves this unchecked for tensors of classes made in Python.
"""

import torch

from simgpu.accounting import queues
from simgpu.device import guard
from simgpu.device.state import state
from simgpu.device.tensor import SimTensor

_where = torch.Tensor.device.__get__  # also where it is shown as cuda


def on_one_thread(run):
    """Return autograd's engine on the calling thread: torch's guard for Python devices tells it of one device only."""
    with torch.inference_mode(False), torch.enable_grad():
        one = torch.ones((), device="cpu")
        leaf = one.clone().requires_grad_()
        copy = leaf.clone()

    @guard.Guard.careful()
    def engine_run_backward(roots, grads, *args, **kwargs):
        grads = _roots_placed(roots, grads)
        try:
            with torch.autograd.set_multithreading_enabled(False):
                found = run(roots, grads, *args, **kwargs)
            if state.backward_ended is not None:
                state.backward_ended()
            return found
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

    return engine_run_backward


def register():
    """Let the clock know when autograd's engine, not Python, calls operations; once a process."""
    queues.Host.in_backward = staticmethod(lambda: torch._C._current_graph_task_id() >= 0)


def _roots_placed(roots, gradients):
    """Return the gradients that backward begins with, each on its root's device; raises RuntimeError with CUDA's words.

    roots: tensors, or edges of the graph; gradients: as many tensors or None; torch tells if they are not as many.
    """
    if len(roots) != len(gradients):
        return gradients
    return tuple(
        _placed(gradient, _where(root), place) if isinstance(root, torch.Tensor) else gradient
        for place, (root, gradient) in enumerate(zip(roots, gradients))
    )


def _placed(gradient, device, place, node=None):
    ours = type(gradient) is SimTensor or (isinstance(gradient, torch.Tensor) and device.type == "sim")
    if not ours or _where(gradient) == device:
        return gradient
    if gradient.dim() == 0:
        return gradient.to(device)
    returned = f"Function {node.name()} returned an " if node else ""
    raise RuntimeError(
        f"{returned}invalid gradient at index {place} - expected device {device} but got {gradient.device}"
    )


def checking(apply):
    """Return a ``torch.autograd.Function``'s step of backward that looks where the gradients it returns are."""

    def checked(node, *gradients):
        results = apply(node, *gradients)
        listed = list(results) if isinstance(results, tuple) else [results]
        edges = (edge for edge in node.next_functions if edge[0] is not None)
        for place, wanted in enumerate(node.needs_input_grad[: len(listed)]):
            if wanted:
                below, number = next(edges)
                listed[place] = _placed(listed[place], below._input_metadata[number].device, place, node)
        return tuple(listed)

    return checked
