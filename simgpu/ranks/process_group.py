"""The process group ``simccl``: what `torch.distributed` and torch's C++ code call, each call handed to a `Rendezvous`.

The methods have the names and arguments of `torch.distributed.ProcessGroup`; of what torch's functions give, a call may
leave out the options. All return a Work at once.
"""

import torch
import torch.distributed as dist

from simgpu.device.state import state
from simgpu.device.tensor import SimTensor
from simgpu.ranks import backend_rules, collectives, reductions
from simgpu.ranks.call import Recv, Send, reduction_of, root_of
from simgpu.ranks.tensor_lists import check_shares, listed, split
from simgpu.ranks.work import Together, seconds_of
from simgpu.torch_glue.c10d import NAME
from simgpu.torch_glue.dispatch_modes import as_operation


class SimGroup(dist.ProcessGroup):
    """A group as one rank has it.

    Args:
        place: The rank's place in the group.
        size: Of the group.
        rendezvous: Where its ranks meet.
        owner: The `Rank`.

    Attributes:
        backend: The name under which the program made it, "nccl" for one; None where it made none, "undefined" where it
            gave no name under CUDA's.
        seconds: The timeout that the program gave it, None for torch's default: gloo's calls raise after it.
    """

    __module__, __qualname__ = "torch.distributed.distributed_c10d", "ProcessGroup"  # as programs print it
    supports_splitting = supports_coalescing = supports_time_estimate = False
    supports_tensor_alloc = staticmethod(lambda device: False)
    reducer = staticmethod(lambda: None)  # returns DDP's, after its forward pass

    def __init__(self, place, size, rendezvous, owner):
        super().__init__(place, size)
        self._place, self._size, self._rendezvous, self._owner = place, size, rendezvous, owner
        self._together, self._used = None, None  # the index of the first GPU whose tensors it was given
        self.seconds = None
        self.declare(None)

    def declare(self, backend):
        """Note the name under which a program made the group: what NCCL or gloo refuse is refused from now on."""
        self.backend = None if backend in (None, NAME) else str(backend).lower()
        self.backends = backend_rules.backends(self.backend)

    def __repr__(self):
        return f"<{self.getBackendName()} rank {self._place} of {self._size} in {self._rendezvous.where}>"

    # -- what torch asks about the group -----------------------------------------------------------------------------

    def rank(self):
        """Return the rank's place in the group."""
        return self._place

    def size(self):
        """Return the number of ranks."""
        return self._size

    def getBackendName(self):
        """Return the name that the program gave, or for none NCCL's; outside `simgpu.as_cuda` ``simccl`` for that."""
        name = "nccl" if self.backend in (None, "undefined") else self.backend
        return NAME if name == "nccl" and not state.as_cuda else name  # torch asks its build for NCCL's version

    _get_backend_name = getBackendName

    @property
    def _device_types(self):
        return [torch.device(backend_rules.shown(device)) for device in self.backends or ("sim", "cpu")]

    def _get_backend(self, device):
        return self

    def _set_group_name(self, name):
        self._name = name

    @property
    def group_name(self):
        """The name by which torch knows the group."""
        return self._name

    # -- collectives -------------------------------------------------------------------------------------------------

    @as_operation("allreduce_")
    def allreduce(self, tensors, opts=None, op=None):
        """Reduce each tensor over the ranks, in place."""
        tensors, schedule = listed(tensors), self._owner.world.schedule(self._size) if self._size > 1 else None
        call, reducer = (
            collectives.AllReduce(tensors, tensors, op=reduction_of(opts, op), schedule=schedule),
            self.reducer(),
        )
        if reducer is not None and len(tensors) == 1 and tensors[0].dim() == 1:
            call.details = reducer.bucket(tensors[0].numel())
        return self._join(call)

    @as_operation("allreduce_coalesced_")
    def allreduce_coalesced(self, tensors, opts=None):
        """As `allreduce`, for several tensors in one go."""
        return self.allreduce(tensors, opts)

    @as_operation("reduce_")
    def reduce(self, tensors, opts=None, op=None, root=None):
        """Reduce into the root's tensors."""
        tensors, op = listed(tensors), reduction_of(None if isinstance(opts, int) else opts, op)
        return self._join(collectives.Reduce(tensors, tensors, root_of(opts, root), op))

    @as_operation("broadcast_")
    def broadcast(self, tensors, opts=None, root=None):
        """Fill the tensors of all with the root's."""
        tensors = listed(tensors)
        return self._join(collectives.Broadcast(tensors, tensors, root_of(opts, root)))

    @as_operation("allgather_")
    def allgather(self, outputs, inputs, opts=None):
        """Fill the list of outputs for each input with the inputs of all ranks."""
        outputs, inputs = (outputs if inputs is listed(inputs) else [outputs]), listed(inputs)
        self._check_lists(outputs)
        return self._join(collectives.AllGather(inputs, outputs))

    @as_operation("allgather_coalesced_")
    def allgather_coalesced(self, outputs, inputs, opts=None):
        """As `allgather`, with a list of outputs for each rank."""
        return self.allgather([list(tensors) for tensors in zip(*outputs)], inputs)

    @as_operation("_allgather_base_")
    def all_gather_single(self, output, tensor, opts=None):
        """Fill the output with the inputs of all ranks, one after the other."""
        return self.all_gather_single_coalesced([output], [tensor], opts)

    @as_operation("allgather_into_tensor_coalesced_")
    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        """As `all_gather_single`, for several tensors in one go."""
        check_shares("all_gather", outputs, inputs, self._size)
        return self._join(collectives.AllGatherSingle(inputs, outputs))

    @as_operation("gather_")
    def gather(self, outputs, inputs, opts=None):
        """Fill the root's list of outputs with the inputs of all ranks."""
        if self._place == root_of(opts):
            self._check_lists(outputs)
        return self._join(collectives.Gather(inputs, outputs, root_of(opts)))

    @as_operation("scatter_")
    def scatter(self, outputs, inputs, opts=None):
        """Fill each rank's output with its tensor of the root's list."""
        if self._place == root_of(opts):
            self._check_lists(inputs)
        return self._join(collectives.Scatter(inputs[0] if inputs else [], outputs, root_of(opts)))

    @as_operation("reduce_scatter_")
    def reduce_scatter(self, outputs, inputs, opts=None):
        """Reduce the lists over the ranks; each keeps its place's tensor."""
        self._check_lists(inputs)
        return self._join(collectives.ReduceScatter(inputs, outputs, op=reduction_of(opts)))

    @as_operation("_reduce_scatter_base_")
    def reduce_scatter_single(self, output, tensor, opts=None):
        """Reduce over the ranks; each keeps its part of the result."""
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    @as_operation("reduce_scatter_tensor_coalesced_")
    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        """As `reduce_scatter_single`, for several tensors in one go."""
        check_shares("reduce_scatter", inputs, outputs, self._size)
        return self._join(collectives.ReduceScatterSingle(inputs, outputs, op=reduction_of(opts)))

    @as_operation("alltoall_")
    def alltoall(self, outputs, inputs, opts=None):
        """Send the list's tensors to the ranks; receive one from each."""
        self._check_lists([outputs, inputs])
        return self._join(collectives.AllToAll(inputs, outputs))

    @as_operation("alltoall_base_")
    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        """Send parts of the first dimension to the ranks, of the given lengths or equal ones; receive from each."""
        sent, received = split(tensor, input_splits, self._size), split(output, output_splits, self._size)
        return self._join(collectives.AllToAllSingle(sent, received, results=[output]))

    @as_operation("barrier")
    def barrier(self, opts=None):
        """Wait for all ranks; the host waits too."""
        call = collectives.Barrier([], [])
        call.seconds = seconds_of(getattr(opts, "timeout", None))
        return self._join(call, self._barrier_device(opts))

    @as_operation("monitored_barrier_")
    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Wait for all ranks. Raises DeadlockError, or TimedOutError after a timeout: they name who is missing."""
        if self.backends and "gloo" not in self.backends.values():
            raise ValueError("monitored_barrier is only implemented for GLOO backend")
        call = collectives.MonitoredBarrier(wait_all_ranks)
        call.seconds = seconds_of(timeout)
        self._join(call).wait()

    # names before torch 2.13
    _allgather_base, allgather_into_tensor_coalesced = all_gather_single, all_gather_single_coalesced
    _reduce_scatter_base, reduce_scatter_tensor_coalesced = reduce_scatter_single, reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # -- messages ----------------------------------------------------------------------------------------------------

    @as_operation("send")
    def send(self, tensors, target, tag=0):
        """Send a tensor to a place of the group: done when that rank receives it."""
        return self._post(Send(tensors, [], (self._place, target), tag, self._owner.in_batch), target)

    @as_operation("recv_")
    def recv(self, tensors, source, tag=0):
        """Receive a tensor from a place of the group."""
        return self._post(Recv([], tensors, (source, self._place), tag, self._owner.in_batch), source)

    @as_operation("recv_any_source_")
    def recv_anysource(self, tensors, tag=0):
        """Receive a tensor from whoever sends first, which NCCL cannot."""
        return self.recv(tensors, None, tag)

    # -- several calls as one ----------------------------------------------------------------------------------------

    def _start_coalescing(self, device):
        self._together = []

    def _end_coalescing(self, device):
        works, self._together = self._together, None
        return Together(works)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _join(self, call, device=None):
        self._settle(call, device)
        self._check_place(call.name, call.root)
        if call.op is not None:
            reductions.check(call.op, call.tensors()[0].dtype)
        return self._kept(self._rendezvous.join(self._place, call, self._owner))

    def _post(self, call, other):
        self._settle(call)
        self._check_place(call.name, other)
        return self._kept(self._rendezvous.post(self._place, call, self._owner))

    def _settle(self, call, device=None):
        """Check a call's tensors, and let it take what it needs of them. device: that of a call without tensors."""
        tensors = call.tensors()
        found = {tensor._index if type(tensor) is SimTensor else None for tensor in tensors}
        if len(found) > 1:
            names = sorted(backend_rules.shown("cpu" if index is None else f"sim:{index}") for index in found)
            raise ValueError(f"{call.name}: expected tensors on one device, got {' and '.join(names)}")
        if any(tensor.is_sparse for tensor in tensors) and call.name != "all_reduce":
            raise ValueError(f"{call.name}: expected dense tensors, got a sparse one")
        index = next(iter(found), device)
        self._used = index if self._used is None and tensors else self._used
        index = self._owner.stands_for if index is None and tensors else index
        if self.backends is not None:
            call.backend = backend_rules.check(self.backends, call, "cpu" if index is None else "sim")
        if call.seconds is None and call.backend == "gloo":
            call.seconds = self.seconds
        call.settle(index is None, index, self._size)

    def _barrier_device(self, opts):
        """Return the index of the GPU on which NCCL's barrier is an all-reduce; None for others' barriers."""
        if self.backends != {"sim": "nccl"} or opts is None:
            return None
        guess = self._owner.number % len(state.gpus) if self._used is None else self._used  # as torch's docstring says
        asked = opts.device_ids or [getattr(opts.device, "index", None)]
        return guess if asked[0] is None else asked[0]

    def _kept(self, work):
        if self._together is not None:
            self._together.append(work)
        return work

    def _check_place(self, name, place):
        if place is not None and not 0 <= place < self._size:
            raise ValueError(f"{name}: expected one of the {self._size} ranks of {self._rendezvous.where}, got {place}")

    def _check_lists(self, lists):
        for tensors in lists:
            if len(tensors) != self._size:
                raise ValueError(
                    f"expected a list of {self._size} tensors, one for each rank of "
                    f"{self._rendezvous.where}, got {len(tensors)}"
                )
