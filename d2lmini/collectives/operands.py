"""Whether tensors, one for each rank, can take part in one collective: the first that cannot is named."""

from collections.abc import Sequence

import torch


def must_agree(tensors: Sequence[torch.Tensor], world_size: int) -> None:
    """Raise ValueError unless `tensors` are one for each rank, alike in shape and type, writable, and apart in memory.

    Devices must be distinct, or all the CPU. The message names the rank, what was expected and what came.
    """
    if len(tensors) != world_size:
        raise ValueError(f"expected {world_size} tensors, one for each rank, got {len(tensors)}")
    first: dict[str, object] = {}
    for rank, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"rank {rank}: expected a tensor, got {type(tensor).__name__}")
        found = {"shape": list(tensor.shape), "type": tensor.dtype, "kind of device": tensor.device.type}
        first = first or found
        for what, want in first.items():
            if found[what] != want:
                raise ValueError(f"rank {rank}: expected the {what} of rank 0's tensor, {want}, got {found[what]}")
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
            raise ValueError(f"rank {rank}: elements of the tensor share a place in memory; use .contiguous()")
    _must_be_apart(tensors)


def _must_be_apart(tensors):
    places = {}
    for rank, tensor in enumerate(tensors if tensors and tensors[0].numel() else ()):
        place = tensor.untyped_storage().data_ptr() if tensor.device.type == "cpu" else tensor.device
        places.setdefault(place, []).append(rank)
    for ranks in places.values():
        if len(ranks) > 1:
            _must_share_nothing(tensors, ranks)


def _must_share_nothing(tensors, ranks):
    """Refuse several ranks on one device, or on the CPU in one storage with an element in common."""
    first = tensors[ranks[0]]
    if first.device.type != "cpu":
        raise ValueError(f"rank {ranks[1]}: expected a device of its own, got {first.device}, rank {ranks[0]}'s")
    owners = torch.full((first.untyped_storage().nbytes() // first.itemsize,), -1, device="cpu")
    for rank in ranks:
        mine = owners.as_strided(tensors[rank].shape, tensors[rank].stride(), tensors[rank].storage_offset())
        if mine.max() >= 0:
            raise ValueError(f"rank {rank}: its tensor shares memory with rank {mine.max()}'s; copy it with .clone()")
        mine.fill_(rank)
