"""What is replaced in torch while ranks are simulated, and put back afterwards."""

import contextlib
from concurrent.futures import Future

import torch
import torch.distributed as dist
import torch.distributed.fsdp.sharded_grad_scaler  # loaded in a rank it would keep that rank's group
from torch._dynamo import convert_frame, eval_frame
from torch.autograd.profiler import profile
from torch.distributed import checkpoint, distributed_c10d, rpc
from torch.distributed.fsdp import _init_utils, fully_sharded_data_parallel
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.pipelining import _backward as pipeline_backward
from torch.distributed.tensor import _redistribute
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn.parallel import DistributedDataParallel

from simgpu.device.state import state
from simgpu.ranks import compiling, pipelines, reducer, shardings
from simgpu.ranks.chunks import Chunks
from simgpu.ranks.here import here
from simgpu.ranks.pickles import Pickler
from simgpu.ranks.process import Process
from simgpu.ranks.process_group import NAME, SimGroup
from simgpu.torch_glue.as_cuda import as_shown, leave
from simgpu.torch_glue.for_a_while import replaced


@contextlib.contextmanager
def torch_for_ranks():
    """Let torch be as ranks need it inside, and as it was afterwards."""
    if NAME not in dist.Backend.backend_list:  # what is known stays known, as the device type does
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["sim", "cpu"])
        # From torch 2.15 on groups get a recorder, which C++ code attaches to groups of C++ alone.
        getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add(NAME)
    process, as_cuda = Process(), state.as_cuda
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    state.backward_ended = _backward_ended
    try:
        with replaced((*place, function) for place, function in _REPLACED.items()):
            yield
    finally:
        state.backward_ended = None
        leave(as_cuda)
        reducer.withdraw()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        process.enter()


def _create(options, _):
    """Make a process group: what torch calls."""
    if here() is None:
        raise RuntimeError(f"the backend {NAME} joins simulated ranks: call simgpu.spawn(fn), which starts them")
    return here().world.group(options)


def join():
    """Make the calling rank's default process group."""
    rank = here()
    _init_process_group(NAME, store=rank.world.store, rank=rank.number, world_size=rank.world.size)


def _init_from_program(*args, **options):
    """A program's own call, with whatever backend: the ranks have joined already, or join again after it left."""
    if here() is None or (dist.is_initialized() and here().program_joined):
        return _init_process_group(*args, **options)  # torch's error for a second call
    rank = here()
    _check_numbers(rank, options)
    if not dist.is_initialized():
        join()
    dist.group.WORLD.declare(args[0] if args else options.get("backend"))
    rank.program_joined = True


def _check_numbers(rank, options):
    """Raise ValueError where a program means another rank than this one, or to join with fewer or more."""
    for word, number in (("rank", rank.number), ("world_size", rank.world.size)):
        if options.get(word, -1) not in (-1, number):
            raise ValueError(
                f"init_process_group: expected {word}={number} on rank {rank.number} of {rank.world.size} "
                f"that simgpu.spawn started, got {options[word]}"
            )


class _Store(dist.TCPStore):
    """A store of the ranks' own: torch's waits until the others come, and lets none of them run meanwhile."""

    def __new__(cls, host_name, port, *args, **options):
        if here() is None:
            return _tcp(host_name, port, *args, **options)
        return dist.PrefixStore(f"{host_name}:{port}", here().world.store)


class _FileStore(dist.FileStore):
    """As `_Store`."""

    def __new__(cls, file_name, *args, **options):
        return _Store(file_name, 0) if here() else _file(file_name, *args, **options)


def _new_group(size, place, ranks, backend, store, name, *args, **options):
    """Make a group of ours, whatever backend a program names: gloo's and NCCL's would wait for other processes."""
    if here() and ranks and name.isdigit():  # which other ranks need not call where torch makes a name of the ranks
        here().world.new_groups.call(here().number, list(ranks))
    made = _new_process_group(size, place, ranks, NAME if here() else backend, store, name, *args, **options)
    if here() and isinstance(made[0], SimGroup) and ranks:
        made[0].declare(dist.group.WORLD.backend if backend == NAME else backend)
    return made


def _backend(group=None):
    """Return what the backend is called: as the program did, or NCCL where it finds simulated GPUs as CUDA's."""
    name, group = _get_backend(group), group or dist.group.WORLD
    return group.getBackendName() if isinstance(group, SimGroup) else name


def _split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, backend=None):
    """Return the group of those `split_ranks` of the parent that the rank is among; torch's own asks for NCCL."""
    mine, of_parent = None, dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
    for places in split_ranks:
        ranks = [of_parent[place] for place in places]
        group = dist.new_group(ranks, timeout, group_desc=group_desc, use_local_synchronization=True)
        mine = group if dist.get_rank() in ranks else mine
    return mine


def _no_rpc(*args, **options):
    """Refuse in one line what would wait for other processes for ever."""
    raise RuntimeError(
        "simulated ranks have no remote procedure calls, for which processes listen on a network: use "
        "collectives or send and recv"
    )


def _init_fsdp1(state, strategy, precision, offload, *options):
    """Refuse parameters on the host: FSDP1 finds their gradients by the tensor that a change of device replaces."""
    if here() is not None and offload is not None and offload.offload_params:
        raise RuntimeError(
            "simulated ranks cannot train FSDP1's parameters on the host (CPUOffload): use fully_shard "
            "with CPUOffloadPolicy"
        )
    return _init_core_state(state, strategy, precision, offload, *options)


def _begin_profile(profiler):
    """Refuse a second rank's profiler, with which torch, which has one a process, would end the process."""
    rank = here()
    if rank is not None and rank.world.profiling not in (None, profiler):
        raise RuntimeError(
            "expected one rank that profiles at a time: torch's profiler is one a process, "
            "so let a single rank start it"
        )
    if rank is not None:
        rank.world.profiling = profiler
    _prepare_trace(profiler)


def _end_profile(profiler, *error):
    try:
        return _end_trace(profiler, *error)
    finally:
        if here() is not None:
            here().world.profiling = None


def _async_save(*args, async_checkpointer_type=None, async_stager=None, **options):
    """Save at once: a thread beside the rank, as torch's, has no turn among the ranks, and could wait for ever."""
    written = Future()
    written.set_result(checkpoint.save(*args, **options))
    return written


def _monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch's own asks for gloo; every group of ours can say who is missing."""
    if not distributed_c10d._rank_not_in_group(group):
        (group or distributed_c10d._get_default_group()).monitored_barrier(timeout, wait_all_ranks)


def _batch_isend_irecv(p2p_op_list):
    """Let messages of a batch go both ways at once, as NCCL's do in one kernel; others of a pair go one by one."""
    rank = here()
    if rank is None:
        return _batch(p2p_op_list)
    rank.in_batch = True
    try:
        with rank.clock.one_launch() if rank.clock else contextlib.nullcontext():
            return _batch(p2p_op_list)
    finally:
        rank.in_batch = False


def _check_hook(model, hook):
    """Let ranks send gradients as bfloat16: torch's own check of such a hook looks for CUDA and NCCL."""
    if here() is None or not getattr(hook, "__name__", "").startswith("bf16_compress"):
        _check_comm_hook(model, hook)


def _device_from_id(*args):
    """Return the device of FSDP's ``device_id=rank``: torch makes devices of numbers where nothing can be replaced."""
    device = _from_id(*args)  # None where a program gives no id
    return as_shown(device) if device and state.as_cuda else device


def _backward_ended():
    if here() is not None:
        here().end_backward()


_init_process_group, _new_process_group = dist.init_process_group, distributed_c10d._new_process_group_helper
_prepare_trace, _end_trace = profile._prepare_trace, profile.__exit__
_get_backend, _init_core_state = dist.get_backend, fully_sharded_data_parallel._init_core_state
_batch, _check_comm_hook = dist.batch_isend_irecv, DistributedDataParallel._check_comm_hook
_from_id = _init_utils._get_device_from_device_id
_tcp, _file = dist.TCPStore, dist.FileStore
_REPLACED = {
    (dist, "TCPStore"): _Store,
    (dist, "FileStore"): _FileStore,
    (eval_frame, "set_eval_frame_isolate_recompiles_id"): compiling.region,
    (convert_frame, "compile_lock"): compiling.Locks(),
    (_init_utils, "_get_device_from_device_id"): _device_from_id,
    (dist, "init_process_group"): _init_from_program,
    (distributed_c10d, "init_process_group"): _init_from_program,
    (distributed_c10d, "_pickler"): Pickler,
    (distributed_c10d, "_new_process_group_helper"): _new_group,
    (dist, "get_backend"): _backend,
    (distributed_c10d, "get_backend"): _backend,
    (dist, "split_group"): _split_group,
    (distributed_c10d, "split_group"): _split_group,
    (rpc, "init_rpc"): _no_rpc,
    (checkpoint, "async_save"): _async_save,
    (dist, "batch_isend_irecv"): _batch_isend_irecv,
    (distributed_c10d, "batch_isend_irecv"): _batch_isend_irecv,
    (dist, "monitored_barrier"): _monitored_barrier,
    (distributed_c10d, "monitored_barrier"): _monitored_barrier,
    (DistributedDataParallel, "_check_comm_hook"): _check_hook,
    (fully_sharded_data_parallel, "_init_core_state"): _init_fsdp1,
    (profile, "_prepare_trace"): _begin_profile,
    (profile, "__exit__"): _end_profile,
    (dist, "_verify_params_across_processes"): reducer.verify_params,
    (dist, "_register_builtin_comm_hook"): reducer.register_hook,
    (_fsdp_param, "_chunk_with_empty"): Chunks,
    (pipeline_backward, "reverse_closure"): pipelines.closure,
    (pipeline_backward, "get_param_groups"): pipelines.groups,
    (_redistribute, "_gen_transform_infos"): shardings.ways,
    (_redistribute, "get_redistribute_planner"): _redistribute.DTensorRedistributePlanner,
    (ShardingPropagator, "propagate_op_sharding_non_cached"): shardings.propagate,
}
