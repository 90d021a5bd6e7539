"""Which device a gradient must be on: what autograd leaves unchecked for tensors of classes made in Python.

As on CUDA a gradient is on the device of the tensor that it belongs to; one without dimensions is moved there.
"""

import torch

from d2lmini.sim.device.tensor import SimTensor


def register():
    """Check what a ``torch.autograd.Function`` returns; only once a process."""
    node = torch.autograd.function.BackwardCFunction
    node.apply = _checking(node.apply)


def placed(roots, gradients):
    """Return the gradients that backward begins with, each on its root's device; raises RuntimeError with CUDA's words.

    roots: tensors, or edges of the graph; gradients: as many tensors or None; torch tells if they are not as many.
    """
    if len(roots) != len(gradients):
        return gradients
    return tuple(_placed(gradient, root.device, place) if isinstance(root, torch.Tensor) else gradient
                 for place, (root, gradient) in enumerate(zip(roots, gradients)))  # fmt: skip


def _placed(gradient, device, place, node=None):
    ours = type(gradient) is SimTensor or (isinstance(gradient, torch.Tensor) and device.type == "sim")
    if not ours or gradient.device == device:
        return gradient
    if gradient.dim() == 0:
        return gradient.to(device)
    returned = f"Function {node.name()} returned an " if node else ""
    raise RuntimeError(f"{returned}invalid gradient at index {place} - expected device {device} "
                       f"but got {gradient.device}")  # fmt: skip


def _checking(apply):
    def checking(node, *gradients):
        results = apply(node, *gradients)
        listed = list(results) if isinstance(results, tuple) else [results]
        edges = (edge for edge in node.next_functions if edge[0] is not None)
        for place, wanted in enumerate(node.needs_input_grad[: len(listed)]):
            if wanted:
                below, number = next(edges)
                listed[place] = _placed(listed[place], below._input_metadata[number].device, place, node)
        return tuple(listed)

    return checking
