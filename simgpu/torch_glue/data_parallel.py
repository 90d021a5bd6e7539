"""What ``torch.nn.parallel`` calls in torch's CUDA library, in Python, for simulated GPUs.

    scatter     one tensor into a chunk a device            broadcast   one tensor onto every device
    gather      a chunk a device into one tensor            coalesced   many small tensors as one copy

A build of torch without CUDA has none of these functions; one with CUDA keeps its own for tensors on real GPUs.
``nn.DataParallel``, ``scatter``, ``gather``, ``replicate`` and ``parallel_apply`` then run unmodified.
"""

from functools import partial

import torch

from simgpu.device.state import state


def _choosing(simulated, real):
    """Return a function that takes the real one for tensors on real GPUs, and for the host's where those lead."""

    def function(tensors, *args):
        given = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
        ours = any(t.is_sim for t in given) or (state.is_accelerator and all(t.is_cpu for t in given))
        if not ours and real is None:
            kinds = ", ".join(sorted({t.device.type for t in given}))
            raise RuntimeError(f"expected tensors on simulated GPUs or the CPU, got them on {kinds}")
        return simulated(tensors, *args) if ours else real(tensors, *args)

    function.__name__ = simulated.__name__
    return function


def _device(index):
    return torch.device("cpu") if index == -1 else state.gpus[state.check(index)].device


def _broadcast(tensor, devices):
    return [tensor.to(_device(index), non_blocking=True) for index in devices]


def _broadcast_out(tensor, outs):
    return [out if out is tensor else out.copy_(tensor, non_blocking=True) for out in outs]


def _broadcast_coalesced(tensors, devices, buffer_size):
    """Return one list of tensors a device; tensors of one type travel together, up to `buffer_size` bytes at a time."""
    results = [[None] * len(tensors) for _ in devices]
    for places in _chunks(tensors, buffer_size):
        flat = torch.cat([tensors[i].reshape(-1) for i in places])
        for result, index in zip(results, devices, strict=True):
            if tensors[places[0]].get_device() == index:
                parts = [tensors[i] for i in places]
            else:
                moved = flat.to(_device(index), non_blocking=True)
                parts = moved.split([tensors[i].numel() for i in places])
                parts = [part.view(tensors[i].shape).detach() for part, i in zip(parts, places, strict=True)]
            for i, part in zip(places, parts, strict=True):
                result[i] = part
    return results


def _chunks(tensors, buffer_size):
    """Yield lists of places of tensors of one type, of at most `buffer_size` bytes, or one tensor, together."""
    open_chunks = {}
    for i, tensor in enumerate(tensors):
        places, size = open_chunks.get(tensor.dtype, ([], 0))
        nbytes = tensor.numel() * tensor.element_size()
        if places and size + nbytes > buffer_size:
            yield places
            places, size = [], 0
        open_chunks[tensor.dtype] = ([*places, i], size + nbytes)
    for places, _ in open_chunks.values():
        yield places


def _scatter(tensor, devices, chunk_sizes, dim, streams):
    if chunk_sizes is None:
        chunks = tensor.chunk(len(devices), dim)
    else:
        if sum(chunk_sizes) != tensor.size(dim) or len(chunk_sizes) != len(devices):
            raise RuntimeError(
                f"Expected devices and chunk_sizes to be of same length, and sizes to sum up to "
                f"{tensor.size(dim)}, but got {len(devices)} devices and chunk_sizes={list(chunk_sizes)}"
            )
        chunks = tensor.split(list(chunk_sizes), dim)
    results = []
    for place, (chunk, index) in enumerate(zip(chunks, devices)):
        stream = streams[place] if streams else None
        with torch.sim.stream(stream):
            results.append(chunk.contiguous().to(_device(index), non_blocking=True))
    return results


def _scatter_out(tensor, outs, dim, streams):
    sizes = [out.size(dim) for out in outs]
    for chunk, out in zip(tensor.split(sizes, dim), outs, strict=True):
        out.copy_(chunk, non_blocking=True)
    return outs


def _gather(tensors, dim, destination):
    place = _device(state.current if destination is None else destination)
    shape = _gathered_shape(tensors, dim)
    return _gather_out(tensors, torch.empty(shape, dtype=tensors[0].dtype, device=place), dim)


def _gather_out(tensors, out, dim):
    for part, tensor in zip(out.split([t.size(dim) for t in tensors], dim), tensors, strict=True):
        part.copy_(tensor, non_blocking=True)
    return out


def _gathered_shape(tensors, dim):
    """Return the shape of the concatenation; raises RuntimeError, naming the place, if another dimension differs."""
    shape = list(tensors[0].shape)
    for i, tensor in enumerate(tensors):
        expected = [*shape[:dim], tensor.shape[dim], *shape[dim:][1:]]
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"gather got an input of invalid size: expected {expected} at index {i}, got {list(tensor.shape)}"
            )
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return shape


def nccl_is_available(real):
    """Return the question whether NCCL can sum these tensors; torch's warns when it was built without."""
    return lambda tensors: not tensors[0].is_sim and real(tensors)


_SIMULATED = (_broadcast, _broadcast_out, _broadcast_coalesced, _scatter, _scatter_out, _gather, _gather_out)
broadcast, broadcast_out, broadcast_coalesced, scatter, scatter_out, gather, gather_out = (
    partial(_choosing, function) for function in _SIMULATED
)
