"""The process group ``simccl``: what `torch.distributed` and torch's C++ code call, each call handed to an `Exchange`.

The methods have the names and arguments of `torch.distributed.ProcessGroup`. All return a Work at once.
"""

import torch
import torch.distributed as dist

from simgpu.device.tensor import SimTensor
from simgpu.ranks import options, reductions, schedules, values
from simgpu.ranks.exchange import Call
from simgpu.ranks.work import Together

NAME = "simccl"


class SimGroup(dist.ProcessGroup):
    """A group as one rank has it. place, size: in the group; exchange: where its ranks meet; owner: the `Rank`."""

    supports_splitting = supports_coalescing = supports_time_estimate = False
    supports_tensor_alloc = staticmethod(lambda device: False)

    def __init__(self, place, size, exchange, owner):
        super().__init__(place, size)
        self._place, self._size, self._exchange, self._owner = place, size, exchange, owner
        self._together = None

    def __repr__(self):
        return f"<{NAME} rank {self._place} of {self._size} in {self._exchange.where}>"

    # -- what torch asks about the group -----------------------------------------------------------------------------

    def rank(self):
        """Return the rank's place in the group."""
        return self._place

    def size(self):
        """Return the number of ranks."""
        return self._size

    def getBackendName(self):
        """Return ``simccl``."""
        return NAME

    _get_backend_name = getBackendName

    _device_types = property(lambda self: [torch.device("sim"), torch.device("cpu")])

    def _get_backend(self, device):
        return self

    def _set_group_name(self, name):
        self._name = name

    @property
    def group_name(self):
        """The name by which torch knows the group."""
        return self._name

    # -- collectives -------------------------------------------------------------------------------------------------

    def allreduce(self, tensors, opts=None, op=None):
        """Reduce each tensor over the ranks, in place."""
        return self._reduce("all_reduce", options.listed(tensors), options.reduction(opts, op))

    allreduce_coalesced = allreduce

    def reduce(self, tensors, opts=None, op=None, root=None):
        """Reduce into the root's tensors."""
        op = options.reduction(None if isinstance(opts, int) else opts, op)
        return self._reduce("reduce", options.listed(tensors), op, options.root(opts, root))

    def broadcast(self, tensors, opts=None, root=None):
        """Fill the tensors of all with the root's."""
        root, tensors = options.root(opts, root), options.listed(tensors)
        act, same = values.broadcast_from(root), {"shapes": _shapes(tensors)}
        return self._join("broadcast", tensors, tensors, act, values.nbytes(tensors), same, root)

    def allgather(self, outputs, inputs, opts=None):
        """Fill the list of outputs for each input with the inputs of all ranks."""
        outputs, inputs = (outputs if inputs is options.listed(inputs) else [outputs]), options.listed(inputs)
        self._check_lists(outputs)
        return self._join("all_gather", inputs, outputs, values.gathered(), self._size * values.nbytes(inputs))

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """As `allgather`, with a list of outputs for each rank."""
        return self.allgather([list(tensors) for tensors in zip(*outputs)], inputs)

    def all_gather_single(self, output, tensor, opts=None):
        """Fill the output with the inputs of all ranks, one after the other."""
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        """As `all_gather_single`, for several tensors in one go."""
        self._check_shares(outputs)
        same, size = {"shapes": _shapes(inputs)}, values.nbytes(outputs)
        return self._join("all_gather", inputs, outputs, values.gathered_in_one, size, same)

    def gather(self, outputs, inputs, opts=None):
        """Fill the root's list of outputs with the inputs of all ranks."""
        root = options.root(opts)
        if self._place == root:
            self._check_lists(outputs)
        size = self._size * values.nbytes(inputs)
        return self._join("gather", inputs, outputs, values.gathered(root), size, root=root)

    def scatter(self, outputs, inputs, opts=None):
        """Fill each rank's output with its tensor of the root's list."""
        root = options.root(opts)
        if self._place == root:
            self._check_lists(inputs)
        sent, size = inputs[0] if inputs else [], self._size * values.nbytes(outputs)
        return self._join("scatter", sent, outputs, values.scattered(root), size, root=root)

    def reduce_scatter(self, outputs, inputs, opts=None):
        """Reduce the lists over the ranks; each keeps its place's tensor."""
        self._check_lists(inputs)
        op, size = options.reduction(opts), values.nbytes(inputs)
        return self._join("reduce_scatter", inputs, outputs, values.reduce_scattered, size, op=op)

    def reduce_scatter_single(self, output, tensor, opts=None):
        """Reduce over the ranks; each keeps its part of the result."""
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        """As `reduce_scatter_single`, for several tensors in one go."""
        self._check_shares(inputs)
        op, size = options.reduction(opts), values.nbytes(inputs)
        same, act = {"shapes": _shapes(inputs)}, values.reduce_scattered_in_one
        return self._join("reduce_scatter", inputs, outputs, act, size, same, op=op)

    def alltoall(self, outputs, inputs, opts=None):
        """Send the list's tensors to the ranks; receive one from each."""
        self._check_lists([outputs, inputs])
        return self._join("all_to_all", inputs, outputs, values.exchanged, values.nbytes(inputs))

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        """Send parts of the first dimension to the ranks, of the given lengths or equal ones; receive from each."""
        sent, received = self._split(tensor, input_splits), self._split(output, output_splits)
        return self._join("all_to_all", sent, received, values.exchanged, values.nbytes([tensor]), results=[output])

    def barrier(self, opts=None):
        """Wait for all ranks; the host waits too."""
        return self._join("barrier", [], [], _nothing, 4)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Wait for all ranks. Raises DeadlockError, which names those that cannot come; it needs no timeout."""
        self._join("monitored_barrier", [], [], _nothing, 4).wait()

    # names before torch 2.13
    _allgather_base, allgather_into_tensor_coalesced = all_gather_single, all_gather_single_coalesced
    _reduce_scatter_base, reduce_scatter_tensor_coalesced = reduce_scatter_single, reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # -- messages ----------------------------------------------------------------------------------------------------

    def send(self, tensors, target, tag=0):
        """Send a tensor to a place of the group: done when that rank receives it."""
        return self._post(self._call("send", tensors, [], None), self._place, target, tag)

    def recv(self, tensors, source, tag=0):
        """Receive a tensor from a place of the group."""
        return self._post(self._call("recv", [], tensors, values.received), source, self._place, tag)

    def recv_anysource(self, tensors, tag=0):
        """Receive a tensor from whoever sends first."""
        return self.recv(tensors, None, tag)

    # -- several calls as one ----------------------------------------------------------------------------------------

    def _start_coalescing(self, device):
        self._together = []

    def _end_coalescing(self, device):
        works, self._together = self._together, None
        return Together(works)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _reduce(self, name, tensors, op, root=None):
        same, schedule = {"shapes": _shapes(tensors)}, None
        if name == "all_reduce" and self._size > 1:
            schedule = self._owner.world.schedule(self._size)
        act = values.reduced(root) if schedule is None or isinstance(schedule, str) else schedules.act(schedule)
        return self._join(name, tensors, tensors, act, values.nbytes(tensors), same, root, op=op, schedule=schedule)

    def _join(self, name, sent, received, act, nbytes, same=None, root=None, results=None, op=None, schedule=None):
        call = self._call(name, sent, received, act, nbytes, results)
        call.schedule = schedule
        self._check_place(name, root)
        if op is not None:
            reductions.check(op, received[0].dtype)
            call.same["reduction"] = reductions.name(op)
        call.same.update(same or {}, root=root)
        call.root, call.reduction = root, op
        return self._kept(self._exchange.join(self._place, call, self._owner))

    def _post(self, call, source, target, tag):
        self._check_place(call.name, source if call.received else target)
        call.tag, call.batched = tag, self._owner.in_batch
        return self._kept(self._exchange.post(self._place, call, self._owner, source, target, tag))

    def _call(self, name, sent, received, act, nbytes=None, results=None):
        sent, received = values.own(sent), values.own(received)
        tensors, own = values.flat([sent, received, results or []]), self._owner.device
        devices = {tensor._index if type(tensor) is SimTensor else None for tensor in tensors}
        if devices not in ({own}, {None}, set()):
            other = next("cpu" if index is None else f"sim:{index}" for index in devices - {own})
            raise ValueError(
                f"{name}: expected tensors on sim:{own}, the device of rank {self._owner.number}, got one on {other}"
            )
        on_host = not self._owner.on_device and own not in devices
        same = {"type": values.kinds(sent or received), "device": "cpu" if on_host else "sim"} if tensors else {}
        nbytes = values.nbytes(tensors) if nbytes is None else nbytes
        reals = [values.real(sent), values.real(received)]
        return Call(name, *reals, same, act, nbytes, received if results is None else results, on_host)

    def _kept(self, work):
        if self._together is not None:
            self._together.append(work)
        return work

    def _check_place(self, name, place):
        if place is not None and not 0 <= place < self._size:
            raise ValueError(f"{name}: expected one of the {self._size} ranks of {self._exchange.where}, got {place}")

    def _check_lists(self, lists):
        for tensors in lists:
            if len(tensors) != self._size:
                raise ValueError(
                    f"expected a list of {self._size} tensors, one for each rank of "
                    f"{self._exchange.where}, got {len(tensors)}"
                )

    def _check_shares(self, tensors):
        for tensor in tensors:
            if tensor.numel() % self._size or not tensor.is_contiguous():
                raise ValueError(
                    f"expected a contiguous tensor whose elements {self._size} ranks can share equally, "
                    f"got shape {list(tensor.shape)} with strides {tensor.stride()}"
                )

    def _split(self, tensor, sizes):
        if not sizes and (tensor.dim() == 0 or tensor.shape[0] % self._size):
            raise ValueError(
                f"expected split sizes, or a first dimension that {self._size} ranks can share equally, "
                f"got shape {list(tensor.shape)}"
            )
        return list(tensor.detach().split(sizes or [tensor.shape[0] // self._size] * self._size))


def _shapes(tensors):
    return [list(tensor.shape) for tensor in tensors]


def _nothing(calls):
    pass
