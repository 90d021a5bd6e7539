"""`torch.distributed` on simulated ranks: groups are made by `ranks`, whatever backend a program names.

The functions here are given one of torch's, `own`, and return what takes its place while ranks run; outside of a rank
that does what torch's does.
"""

import contextlib
import sys
from concurrent.futures import Future
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.utils._pytree import tree_map_only  # noqa: F401 for `ranks`, which knows no private names of torch

from simgpu.device.state import state
from simgpu.torch_glue import group_names
from simgpu.torch_glue.here import here

NAME = "simccl"


# -- while ranks run -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def around():
    """Let torch know our backend, keep threads' groups apart, and end with as many `as_cuda` as before."""
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["sim", "cpu"])
    held, state.backward_ended, state.before_copy = state.as_cuda, _backward_ended, _before_copy
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    try:
        yield
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        state.backward_ended = state.before_copy = None
        if state.as_cuda > held:
            sys.modules["simgpu.torch_glue.as_cuda"].leave(held)
        delattr(dist.Backend, NAME.upper())


def _create(options, _):
    """Make a process group: what torch calls."""
    if here() is None:
        raise RuntimeError(f"the backend {NAME} joins simulated ranks: call simgpu.spawn(fn), which starts them")
    return here().world.group(options)


def _before_copy(source):
    if here() is not None:
        here().before_copy(source)


def _backward_ended():
    if here() is not None:
        here().end_backward()


def no_groups(own=None):
    """Return what stands for torch's record of its process groups, with all of its parts, empty."""
    parts = {name for name, part in vars(distributed_c10d._World).items() if isinstance(part, property)}
    parts -= {"default_pg", "pg_config_info"}  # the latter is computed from the others
    empty = {name: type(getattr(distributed_c10d._world, name))() for name in parts}
    return SimpleNamespace(default_pg=None, **empty)


@contextlib.contextmanager
def outside():
    """Let the calling rank have no process groups inside."""
    before, distributed_c10d._world = distributed_c10d._world, no_groups()
    try:
        yield
    finally:
        distributed_c10d._world = before


def with_gloo(own):
    """Return the devices that each backend takes, with simulated GPUs for gloo's."""
    return {**own, "gloo": [*own.get("gloo", []), "sim"]}


def without_recorder(own):
    """Return the backends whose groups get no recorder of torch's, with ours."""
    return {*own, NAME}


# -- making groups ---------------------------------------------------------------------------------------------------


def init_process_group(own):
    """A program's own call, with whatever backend: the ranks have joined already, or join again after it left."""

    def init_process_group(*args, **options):
        rank = here()
        if rank is None or (dist.is_initialized() and rank.program_joined):
            return own(*args, **options)  # torch's error for a second call
        _check_numbers(rank, options)
        if not dist.is_initialized():
            own(NAME, store=rank.world.store, rank=rank.number, world_size=rank.world.size)
        if options.get("store") is not rank.world.store:  # else it was `ranks` that called
            name = args[0] if args else options.get("backend")
            dist.group.WORLD.declare("undefined" if name is None and state.as_cuda else name)
            dist.group.WORLD.seconds = _own_timeout(args[2] if len(args) > 2 else options.get("timeout"))
            rank.program_joined = True
            group_names.bind(dist.group.WORLD, options.get("device_id"))
            if state.as_cuda and not state.thread.chosen:
                state.current = 0  # as a new process of torchrun's has it
        return None

    return init_process_group


def nccl_timeout(own):
    """Return the default timeout of NCCL's groups, which a build without NCCL leaves out, with a warning."""
    return own or timedelta(minutes=10)


def _own_timeout(timeout):
    """Return a timeout in seconds that is the program's own, None for torch's default one."""
    if timeout in (None, distributed_c10d.default_pg_timeout, distributed_c10d.default_pg_nccl_timeout):
        return None
    distributed_c10d._check_valid_timeout(timeout)
    return timeout.total_seconds()


def _check_numbers(rank, options):
    """Raise ValueError where a program means another rank than this one, or to join with fewer or more."""
    for word, number in (("rank", rank.number), ("world_size", rank.world.size)):
        if options.get(word, -1) not in (-1, number):
            raise ValueError(
                f"init_process_group: expected {word}={number} on rank {rank.number} of {rank.world.size} "
                f"that simgpu.spawn started, got {options[word]}"
            )


def new_group(own):
    """Make a group of ours, whatever backend a program names: gloo's and NCCL's would wait for other processes."""

    def new_group(size, place, ranks, backend, store, name, *args, **options):
        if here() and ranks and name.isdigit():  # which other ranks need not call where torch makes a name of the ranks
            here().world.new_groups.call(here().number, list(ranks))
        made = own(size, place, ranks, NAME if here() else backend, store, name, *args, **options)
        if here() and ranks and group_names.is_ours(made[0]):
            made[0].declare(dist.group.WORLD.backend if backend == NAME else backend)
            made[0].seconds = _own_timeout(options.get("timeout"))
            group_names.bind(made[0], options.get("device_id"))
        return made

    return new_group


def split_group(own):
    """Return the group of those ranks of the parent that the rank is among; torch's own asks for NCCL."""

    def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, backend=None):
        mine, of_parent = None, dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
        for places in split_ranks:
            ranks = [of_parent[place] for place in places]
            group = dist.new_group(ranks, timeout, group_desc=group_desc, use_local_synchronization=True)
            mine = group if dist.get_rank() in ranks else mine
        return mine

    return split_group


def tcp_store(own):
    """A store of the ranks' own: torch's waits until the others come, and lets none of them run meanwhile."""

    class Store(own):
        def __new__(cls, host_name, port, *args, **options):
            if here() is None:
                return own(host_name, port, *args, **options)
            return dist.PrefixStore(f"{host_name}:{port}", here().world.store)

    return Store


def file_store(own):
    """As `tcp_store`."""

    class Store(own):
        def __new__(cls, file_name, *args, **options):
            if here() is None:
                return own(file_name, *args, **options)
            return dist.PrefixStore(f"{file_name}:0", here().world.store)

    return Store


# -- calls -----------------------------------------------------------------------------------------------------------


def no_rpc(own):
    """Refuse in one line what would wait for other processes for ever."""

    def init_rpc(*args, **options):
        raise RuntimeError(
            "simulated ranks have no remote procedure calls, for which processes listen on a network: use "
            "collectives or send and recv"
        )

    return init_rpc


def async_save(own):
    """Save at once: a thread beside the rank, as torch's, has no turn among the ranks, and could wait for ever."""

    def async_save(*args, async_checkpointer_type=None, async_stager=None, **options):
        written = Future()
        written.set_result(sys.modules["torch.distributed.checkpoint"].save(*args, **options))
        return written

    return async_save


def monitored_barrier(own):
    """torch's own asks for gloo; every group of ours can say who is missing."""

    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        if dist.get_rank(group) >= 0:
            (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks)

    return monitored_barrier


def batch_isend_irecv(own):
    """Let messages of a batch go both ways at once, as NCCL's do in one kernel; others of a pair go one by one."""

    def batch_isend_irecv(p2p_op_list):
        rank = here()
        if rank is None:
            return own(p2p_op_list)
        rank.in_batch = True
        try:
            with rank.clock.one_launch() if rank.clock else contextlib.nullcontext():
                return own(p2p_op_list)
        finally:
            rank.in_batch = False

    return batch_isend_irecv


def run_with_numbers(func, *args, **kwargs):
    """Run an operation's kernel for tensors with numbers, also on those without.

    Of tensors without numbers torch has kernels that know shapes only and reach no group.
    """
    return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)


def late(tensor):
    """Return the result of a functional collective that is waited for when it is first used."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return AsyncCollectiveTensor(tensor)


def awaited(tensor):
    """Return a rank's own tensor, once it is there where it is the result of a functional collective.

    Raises TypeError for a DTensor: what a rank holds of it is not its value.
    """
    sharded, functional = map(
        sys.modules.get, ("torch.distributed.tensor", "torch.distributed._functional_collectives")
    )
    if sharded and isinstance(tensor, sharded.DTensor):
        raise TypeError("expected a rank's own tensor, got a DTensor: send its to_local() or take its full_tensor()")
    late = getattr(functional, "AsyncCollectiveTensor", ())  # see the feature's row: without it there are none
    return tensor.trigger_wait() if isinstance(tensor, late) else tensor


def parts_of_sparse(tensor):
    """Return the tensors that hold a sparse tensor's places and values."""
    return [tensor._indices(), tensor._values()]
