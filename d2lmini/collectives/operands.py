"""Whether tensors, one for each rank, can take part in one collective: the first that cannot is named."""

import torch


def must_agree(tensors, world_size):
    """Raise ValueError unless `tensors` are one for each rank, alike in shape and type, writable, and apart in memory.

    Devices must be distinct, or all the CPU. The message names the rank, what was expected and what came.
    """
    if len(tensors) != world_size:
        raise ValueError(f"expected {world_size} tensors, one for each rank, got {len(tensors)}")
    for rank, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"rank {rank}: expected a tensor, got {type(tensor).__name__}")
        _must_be_like(tensors[0], tensor, rank)
        strides = () if tensor.is_contiguous() else zip(tensor.stride(), tensor.shape)
        if any(stride == 0 and size > 1 for stride, size in strides):
            raise ValueError(f"rank {rank}: elements of the tensor share a place in memory; use .contiguous()")
    _must_be_apart(tensors)


def _must_be_like(first, tensor, rank):
    for what, want, got in (("shape", first.shape, tensor.shape), ("type", first.dtype, tensor.dtype),
                            ("kind of device", first.device.type, tensor.device.type)):  # fmt: skip
        if got != want:
            want, got = (list(x) if what == "shape" else x for x in (want, got))
            raise ValueError(f"rank {rank}: expected the {what} of rank 0's tensor, {want}, got {got}")


def _must_be_apart(tensors):
    earlier = {}
    for rank, tensor in enumerate(tensors):
        on_cpu = tensor.device.type == "cpu"
        same = earlier.setdefault(tensor.untyped_storage().data_ptr() if on_cpu else tensor.device, [])
        for other in same if tensor.numel() else ():
            if not on_cpu:
                raise ValueError(f"rank {rank}: expected a device of its own, got {tensor.device}, rank {other}'s")
            if _overlap(tensor, tensors[other]):
                raise ValueError(f"rank {rank}: its tensor shares memory with rank {other}'s; copy it with .clone()")
        same.append(rank)


def _overlap(a, b):
    """Return whether two tensors of one storage have an element in common."""
    first, last = zip(*((t.storage_offset(), t.storage_offset() + _span(t)) for t in (a, b)))
    return max(first) <= min(last) and not _places(a).isdisjoint(_places(b))


def _span(tensor):
    return sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def _places(tensor):
    """Return the elements of its storage that a tensor reaches; slow, and needed only for interleaved views."""
    places = torch.tensor([tensor.storage_offset()])
    for size, stride in zip(tensor.shape, tensor.stride()):
        places = (places[:, None] + torch.arange(size) * stride).flatten()
    return set(places.tolist())
