"""What each collective does with the ranks' tensors: functions over all ranks' calls, run by the last rank to call.

A call holds the real tensors that its rank gives, `sent`, and those that it wants filled, `received`.
"""

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

from simgpu.device.tensor import SimTensor
from simgpu.ranks.errors import MismatchError
from simgpu.ranks.reductions import combine


def reduced(root=None):
    """All-reduce: everybody receives the reduction of what all sent; reduce: only `root` does."""

    def act(calls):
        for place in range(len(calls[0].sent)):
            total = combine([call.reduction for call in calls], [call.sent[place] for call in calls])
            for call in calls if root is None else [calls[root]]:
                call.received[place].copy_(total)

    return act


def broadcast_from(root):
    """Everybody receives what `root` sent."""

    def act(calls):
        for call in calls:
            if call is not calls[root]:
                for ours, theirs in zip(call.received, calls[root].sent):
                    ours.copy_(theirs)

    return act


def gathered(root=None):
    """All-gather: everybody receives what each sent, in one list for each tensor; gather: only `root` does."""

    def act(calls):
        for call in calls if root is None else [calls[root]]:
            for place, pieces in enumerate(call.received):
                for other, piece in zip(calls, pieces):
                    _put(call, piece, other, other.sent[place])

    return act


def gathered_in_one(calls):
    """All-gather into tensors that hold what all sent, one after the other."""
    for place in range(len(calls[0].sent)):
        whole = torch.cat([call.sent[place].flatten() for call in calls])
        for call in calls:
            _fit(call, call.received[place], calls[0], whole)
            call.received[place].copy_(whole.view(call.received[place].shape))


def scattered(root):
    """Everybody receives its piece of the list that `root` sent."""

    def act(calls):
        for call, piece in zip(calls, calls[root].sent):
            _put(call, call.received[0], calls[root], piece)

    return act


def reduce_scattered(calls):
    """Everybody receives the reduction of the pieces that all sent to it."""
    ops = [call.reduction for call in calls]
    for receiver, call in enumerate(calls):
        for place, ours in enumerate(call.received):
            pieces = [other.sent[place][receiver] for other in calls]
            for other, piece in zip(calls, pieces):
                _fit(call, ours, other, piece)
            ours.copy_(combine(ops, [piece.reshape(ours.shape) for piece in pieces]))


def reduce_scattered_in_one(calls):
    """Everybody receives its part of the reduction of tensors whose parts, one after the other, belong to the ranks."""
    ops = [call.reduction for call in calls]
    for place in range(len(calls[0].sent)):
        parts = combine(ops, [call.sent[place] for call in calls]).view(len(calls), -1)
        for call, part in zip(calls, parts):
            _put(call, call.received[place], calls[0], part)


def exchanged(calls):
    """All-to-all: everybody receives from each the piece that it sent to it."""
    for receiver, call in enumerate(calls):
        for other, piece in zip(calls, call.received):
            _put(call, piece, other, other.sent[receiver])


def received(calls):
    """The second of two calls receives what the first sent."""
    sending, receiving = calls
    for ours, theirs in zip(receiving.received, sending.sent):
        _put(receiving, ours, sending, theirs)


def _put(call, ours, other, theirs):
    _fit(call, ours, other, theirs)
    ours.copy_(theirs.reshape(ours.shape))


def _fit(call, ours, other, theirs):
    """Raise MismatchError unless a piece has as many elements, of the same type, as the rank that receives it wants."""
    if ours.numel() != theirs.numel() or ours.dtype != theirs.dtype:
        raise MismatchError(
            f"{call.name}: rank {call.rank} expects {_text(ours)} from rank {other.rank}, which sends {_text(theirs)}"
        )


def _text(tensor):
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def flat(tensors):
    """Return the tensors of nested lists in one list."""
    return [tensor for item in tensors for tensor in (flat(item) if isinstance(item, (list, tuple)) else [item])]


def own(tensors):
    """Return nested lists of tensors with the results of functional collectives waited for, as what they hold.

    Raises TypeError for a DTensor: what a rank holds of it is not its value.
    """
    if isinstance(tensors, (list, tuple)):
        return [own(tensor) for tensor in tensors]
    if isinstance(tensors, DTensor):
        raise TypeError("expected a rank's own tensor, got a DTensor: send its to_local() or take its full_tensor()")
    return tensors.trigger_wait() if isinstance(tensors, AsyncCollectiveTensor) else tensors


def kinds(tensors):
    """Return the name of the type of nested lists of tensors, or the list of their types where these differ."""
    found = [str(tensor.dtype).removeprefix("torch.") for tensor in flat([tensors])]
    return found[0] if len(set(found)) == 1 else found


def nbytes(tensors):
    """Return the bytes of tensors in nested lists."""
    return sum(tensor.numel() * tensor.element_size() for tensor in flat(tensors))


def real(tensors):
    """Return nested lists of tensors with those on simulated GPUs replaced by the ones that hold their values."""
    if isinstance(tensors, (list, tuple)):
        return [real(tensor) for tensor in tensors]
    return tensors._real if type(tensors) is SimTensor else tensors.detach()
