"""What one rank asks of its group: the base of all collectives, and the two sides of a message."""

import torch.distributed as dist

from simgpu.ranks.errors import MismatchError
from simgpu.ranks.reductions import name as name_of
from simgpu.ranks.tensor_lists import dtypes, flat, nbytes, real, shapes, unwrap


class Call:
    """What one rank asks of its group.

    Args:
        sent: The tensors that it gives.
        received: Those that it wants filled.
        root: A place in the group.
        op: A ReduceOp.
        results: What its Work returns; by default `received`.
        schedule: What carries an all-reduce, or an algorithm's name; None for what a library would choose.

    Attributes:
        single: Whether ranks give and get one tensor, and its parts are views.
        on_host: Whether the tensors are the host's own.
        device: Otherwise, the index of their GPU on the rank's node.
        backend: The name of the one that the program chose for them.
        same: {word: value} that must agree among the ranks.
        line: Where the program makes the call, in words.
        rank, number, rendezvous: Where it meets the others.
        seconds: How long the program is ready to wait for the others, None for ever.
        ready: The picosecond at which it may begin.
    """

    name = ""
    details = staticmethod(lambda: "")  # returns what error messages say of the call besides, in words
    equal_shapes = False  # whether the shapes of what ranks send must be equal
    single = False

    def __init__(self, sent, received, root=None, op=None, results=None, schedule=None):
        self.sent, self.received, self.root, self.op = unwrap(sent), unwrap(received), root, op
        self.results = self.received if results is None else unwrap(results)
        self.schedule, self.on_host, self.device, self.backend, self.same = schedule, False, None, None, {}
        self.rank, self.number, self.rendezvous, self.ready, self.line = -1, 0, None, 0, ""
        self.seconds = None

    def __str__(self):
        return f"{self.name} #{self.number} of {self.where}"

    @property
    def where(self):
        """The group, in words."""
        return self.rendezvous.where

    def tensors(self):
        """Return all tensors of the call in one list."""
        return flat([self.sent, self.received, self.results])

    def settle(self, on_host, device, size):
        """Note what must agree and how many bytes count, of a call in a group of `size`; keep the real tensors."""
        self.on_host, self.device = on_host, device
        if self.tensors():
            self.same = {"type": dtypes(self.sent or self.received), "device": "cpu" if on_host else "sim"}
        if self.op is not None:
            self.same["reduction"] = name_of(self.op)
        if self.equal_shapes:
            self.same["shapes"] = shapes(self.sent)
        self.same["root"] = self.root
        self.nbytes = self.size(size)
        self.sent, self.received = real(self.sent), real(self.received)

    def size(self, ranks):
        """Return the bytes that the cost counts: of the whole buffer, in a group of so many ranks."""
        return nbytes(self.sent)

    def late(self, own, missing):
        """Return what a backend says of a call that the others have left alone for too long.

        own: Whether it is this call's time that is over, and not another rank's.
        missing: The others, in words.
        """
        if not own:
            return f"{self}: Connection closed by peer"
        took = f"{self.seconds * 1000:.0f}"
        if self.backend == "gloo" or self.on_host:
            return f"gloo: Timed out waiting {took}ms for recv operation to complete: {self}"
        return f"Watchdog caught collective operation timeout: {self} ran for {took} milliseconds before timing out"

    @staticmethod
    def run(calls):
        """Carry out the calls of all ranks."""


class Message(Call):
    """One side of a message.

    Attributes:
        ends: The places that send and receive, None for a sender that may be any.
        batched: Whether it is one of a batch.
        source: The place that it was received from.
    """

    def __init__(self, sent, received, ends, tag, batched):
        super().__init__(sent, received)
        self.ends, self.tag, self.batched, self.source = ends, tag, batched, -1

    def __str__(self):
        return f"{self.name}{f' with tag {self.tag}' if self.tag else ''} in {self.where}"

    def size(self, ranks):
        """Return the bytes of the tensor."""
        return nbytes(self.sent or self.received)

    @staticmethod
    def run(calls):
        """Copy what the first of two calls sends into the second's tensor."""
        sending, receiving = calls
        for ours, theirs in zip(receiving.received, sending.sent):
            put(receiving, ours, sending, theirs)


class Send(Message):
    """The side that sends a tensor."""

    name = "send"


class Recv(Message):
    """The side that receives a tensor."""

    name = "recv"


def put(call, ours, other, theirs):
    """Copy a piece that rank `other` sends into the tensor in which `call`'s rank wants it."""
    fit(call, ours, other, theirs)
    ours.copy_(theirs.reshape(ours.shape))


def fit(call, ours, other, theirs):
    """Raise MismatchError unless a piece has as many elements, of the same type, as the rank that receives it wants."""
    if ours.numel() != theirs.numel() or ours.dtype != theirs.dtype:
        raise MismatchError(
            f"{call.name}{call.rendezvous.made}: rank {call.rank} expects {_text(ours)} from rank {other.rank}"
            f"{call.line}, which sends {_text(theirs)}{other.line}"
        )


def _text(tensor):
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def reduction_of(opts, op=None):
    """Return the reduction that a call names itself or in its options, by default the sum."""
    asked = opts if op is None else op
    return dist.ReduceOp.SUM if asked is None else getattr(asked, "reduceOp", asked)


def root_of(opts, root=None):
    """Return the root's place that a call names itself or in its options, by default 0."""
    asked = opts if root is None else root
    return 0 if asked is None else getattr(asked, "rootRank", asked)
