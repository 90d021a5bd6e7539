"""What NCCL and gloo refuse is refused by groups made under their names, and by no others."""

import pytest
import torch
import torch.distributed as dist

import simgpu
from simgpu import DeadlockError

OP = dist.ReduceOp


@pytest.fixture(autouse=True)
def four_gpus():
    simgpu.enable(4)


def on_gpu(*shape, dtype=torch.float32):
    return torch.ones(*shape or (4, 2), dtype=dtype, device="cuda")


def reduced(dtype, op=OP.SUM):
    return lambda: dist.all_reduce(on_gpu(dtype=dtype), op)


def gathered(ours, theirs):
    root = dist.get_rank() == 0
    dist.gather(ours, [theirs.clone() for _ in range(2)] if root else None)


def scattered(ours, theirs):
    dist.scatter(ours, [theirs.clone() for _ in range(2)] if dist.get_rank() == 0 else None)


def sent(tensor):
    (dist.send if dist.get_rank() else dist.recv)(tensor, 1 - dist.get_rank())


# What is called, the error's type and a word of it; NCCL refuses each row, and a group of no name takes those with "*".
NCCL = {
    "* CPU all_reduce": (lambda: dist.all_reduce(torch.ones(2)), RuntimeError, "device type cpu"),
    "* CPU broadcast": (lambda: dist.broadcast(torch.ones(2), 0), RuntimeError, "device type cpu"),
    "* CPU all_gather": (lambda: dist.all_gather([torch.ones(2)] * 2, torch.ones(2)), RuntimeError, "device type cpu"),
    "* CPU message": (lambda: sent(torch.ones(2)), RuntimeError, "device type cpu"),
    "* strided all_reduce": (lambda: dist.all_reduce(on_gpu().t()), ValueError, "contiguous"),
    "* strided column": (lambda: dist.all_reduce(on_gpu()[:, 0]), ValueError, "contiguous"),
    "* strided broadcast": (lambda: dist.broadcast(on_gpu().t(), 0), ValueError, "contiguous"),
    "* strided reduce": (lambda: dist.reduce(on_gpu().t(), 0), ValueError, "contiguous"),
    "* strided all_gather": (
        lambda: dist.all_gather([on_gpu(2, 4), on_gpu(2, 4)], on_gpu().t()),
        ValueError,
        "contiguous",
    ),
    "* strided all_gather_into_tensor": (
        lambda: dist.all_gather_into_tensor(on_gpu(4, 4), on_gpu().t()),
        ValueError,
        "contiguous",
    ),
    "* strided reduce_scatter": (
        lambda: dist.reduce_scatter(on_gpu().t(), [on_gpu(2, 4), on_gpu(2, 4)]),
        ValueError,
        "contiguous",
    ),
    "* strided all_to_all_single": (
        lambda: dist.all_to_all_single(on_gpu(2, 4), on_gpu().t()),
        ValueError,
        "contiguous",
    ),
    "* strided gather": (lambda: gathered(on_gpu().t(), on_gpu(2, 4)), ValueError, "contiguous"),
    "* strided scatter": (lambda: scattered(on_gpu().t(), on_gpu(2, 4)), ValueError, "contiguous"),
    "* strided message": (lambda: sent(on_gpu().t()), ValueError, "contiguous"),
    "* BAND": (reduced(torch.int32, OP.BAND), ValueError, "BAND"),
    "* BOR": (reduced(torch.int32, OP.BOR), ValueError, "BOR"),
    "* BXOR": (reduced(torch.int64, OP.BXOR), ValueError, "BXOR"),
    "* int16": (reduced(torch.int16), TypeError, "int16"),
    "* uint16": (reduced(torch.uint16), TypeError, "uint16"),
    "* int16 message": (lambda: sent(on_gpu(dtype=torch.int16)), TypeError, "int16"),
    "* complex gather": (
        lambda: gathered(on_gpu(dtype=torch.complex64), on_gpu(dtype=torch.complex64)),
        TypeError,
        "complex64",
    ),
    "AVG of bool": (reduced(torch.bool, OP.AVG), TypeError, "boolean"),
    "float8 reduced": (
        lambda: dist.all_reduce(on_gpu().to(torch.float8_e4m3fn)),
        RuntimeError,
        "Float8",
    ),
    "complex MAX": (reduced(torch.complex64, OP.MAX), ValueError, "complex"),
    "PREMUL_SUM of integers": (
        lambda: dist.all_reduce(on_gpu(dtype=torch.int32), dist._make_nccl_premul_sum(2.0)),
        TypeError,
        "PreMulSum",
    ),
    "* monitored_barrier": (lambda: dist.monitored_barrier(), ValueError, "GLOO"),
    "any source": (
        lambda: dist.send(on_gpu(), 0) if dist.get_rank() else dist.recv(on_gpu()),
        NotImplementedError,
        "recvAnysource",
    ),
    "all_gather_into_tensor's size": (
        lambda: dist.all_gather_into_tensor(on_gpu(6), on_gpu(2)),
        ValueError,
        "world size",
    ),
    "reduce_scatter_tensor's size": (
        lambda: dist.reduce_scatter_tensor(on_gpu(2), on_gpu(6)),
        ValueError,
        "world size",
    ),
    "all_gather_into_tensor's type": (
        lambda: dist.all_gather_into_tensor(on_gpu(4), on_gpu(2, dtype=torch.float64)),
        TypeError,
        "type",
    ),
    "gather's size": (lambda: gathered(on_gpu(2), on_gpu(3)), ValueError, "size"),
    "scatter's size": (lambda: scattered(on_gpu(2), on_gpu(3)), ValueError, "size"),
    "a message to itself": (lambda: dist.send(on_gpu(), dist.get_rank()), ValueError, "rank"),
    "all on one GPU": (lambda: dist.all_reduce(on_gpu().to("cuda:0")), dist.DistBackendError, "Duplicate GPU"),
    "a barrier on one GPU": (lambda: dist.barrier(device_ids=[0]), dist.DistBackendError, "Duplicate GPU"),
    "an object on one GPU": (
        lambda: torch.cuda.set_device(0) or dist.all_gather_object([None] * 2, 1),
        dist.DistBackendError,
        "Duplicate GPU",
    ),
}


def as_cuda(run, backend, size=2):
    """Return what `run` gave on `size` ranks of a group of that backend, or the first error's cause."""

    def on_rank(rank):
        torch.cuda.set_device(rank)
        dist.init_process_group(backend)
        return run()

    with simgpu.as_cuda():
        try:
            return simgpu.spawn(on_rank, nprocs=size)
        except simgpu.RankError as error:
            return error.__cause__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NCCL)
def test_nccl_refuses(name):
    call, kind, word = NCCL[name]
    error = as_cuda(call, "nccl")
    assert isinstance(error, kind)
    assert word in str(error)
    assert "sim" not in str(error).replace("simgpu", "")
    if name.startswith("*"):
        assert as_cuda(call, "simccl") == [None, None]


@pytest.mark.filterwarnings("ignore")
def test_nccl_takes_what_it_takes():
    def run():
        images = on_gpu(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
        dist.all_reduce(images)
        dist.all_gather([on_gpu().t(), on_gpu().t()], on_gpu(2, 4))  # it copies the list
        dist.reduce_scatter(on_gpu(2, 4), [on_gpu().t(), on_gpu().t()])
        dist.all_reduce(on_gpu(dtype=torch.complex64), OP.AVG)
        dist.all_gather_into_tensor(on_gpu(4, dtype=torch.complex64), on_gpu(2, dtype=torch.complex64))
        dist.broadcast(on_gpu().to(torch.float8_e4m3fn), 0)
        dist.all_reduce(on_gpu(dtype=torch.bool))
        dist.barrier()
        objects = [None] * 2
        dist.all_gather_object(objects, dist.get_rank())
        return dist.get_backend(), images.sum().item(), objects

    assert as_cuda(run, "nccl") == [("nccl", 192.0, [0, 1])] * 2


@pytest.mark.filterwarnings("error:.*NCCL support:UserWarning")
def test_no_name_is_nccls_under_cudas():
    def run():
        dist.all_reduce(on_gpu(), group=dist.new_group(backend="nccl"))
        group = dist.new_group()
        dist.all_reduce(on_gpu(), group=group)
        return dist.get_backend(), dist.get_backend(group), dist.get_backend_config(group)

    assert as_cuda(run, None) == [("undefined", "undefined", "cuda:nccl")] * 2
    for group in (lambda: None, dist.new_group):
        assert "No backend type" in str(
            as_cuda(lambda group=group: dist.all_reduce(torch.ones(2), group=group()), None)
        )
    simgpu.spawn(lambda rank: dist.init_process_group() or dist.all_reduce(torch.ones(2)), nprocs=2)  # no CUDA there


def test_a_name_for_each_device():
    def run():
        host, gpu = torch.ones(2), on_gpu(2)
        dist.all_reduce(host)
        dist.all_reduce(gpu)
        return host.tolist(), gpu.tolist()

    assert as_cuda(run, "cpu:gloo,cuda:nccl") == [([2.0, 2.0], [2.0, 2.0])] * 2
    assert isinstance(as_cuda(lambda: dist.all_reduce(on_gpu().t()), "cpu:gloo,cuda:nccl"), ValueError)


def real_gloo(call):
    """Return the error of `call` in a real gloo group of one process, or None."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return call("cpu")
    except Exception as error:
        return error
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_gloo_refuses_what_gloo_refuses():
    """The oracle: torch's gloo, in this process."""

    def each(device):
        def tensor(dtype):
            return torch.ones(4, 2, device=device).to(dtype)

        def failed(call):
            try:
                call()
            except (RuntimeError, ValueError, TypeError):
                return True
            return False

        types = (torch.float32, torch.bfloat16, torch.int16, torch.int64, torch.uint16, torch.bool, torch.complex64)
        ops = ("SUM", "AVG", "MAX", "BAND")
        found = {
            (op, dtype): failed(lambda op=op, dtype=dtype: dist.all_reduce(tensor(dtype), getattr(OP, op)))
            for op in ops
            for dtype in types
        }
        found |= {dtype: failed(lambda dtype=dtype: dist.broadcast(tensor(dtype), 0)) for dtype in types}
        found["strided"] = failed(lambda: dist.all_reduce(tensor(torch.float32).t()))
        found["all_to_all"] = failed(
            lambda: dist.all_to_all_single(tensor(torch.float32).t(), tensor(torch.float32).t())
        )
        found["factor"] = failed(lambda: dist.all_reduce(tensor(torch.float32), dist._make_nccl_premul_sum(2.0)))
        dist.monitored_barrier()
        return found

    wanted = real_gloo(each)
    assert as_cuda(lambda: each("cpu"), "gloo", 1) == [wanted]
    assert as_cuda(lambda: each("cuda"), "gloo", 1) == [wanted]


def receive_first():
    other, works = 1 - dist.get_rank(), []
    works = [dist.irecv(on_gpu(), other), dist.isend(on_gpu(), other)]
    for work in works:
        work.wait()


def alternate():
    other, calls = 1 - dist.get_rank(), [dist.isend, dist.irecv]
    works = [call(on_gpu(), other) for call in calls[:: 1 if other else -1]]
    for work in works:
        work.wait()


def unequal():
    rank = dist.get_rank()
    calls = [dist.irecv, dist.isend, dist.irecv] if rank == 0 else [dist.irecv, dist.isend, dist.isend]
    for work in [call(on_gpu(), 1 - rank) for call in calls]:
        work.wait()


def batched():
    other = 1 - dist.get_rank()
    for work in dist.batch_isend_irecv([dist.P2POp(call, on_gpu(), other) for call in (dist.irecv, dist.isend)]):
        work.wait()


def ring():
    rank, size = dist.get_rank(), dist.get_world_size()
    work = dist.isend(on_gpu(), (rank + 1) % size)
    dist.recv(on_gpu(), (rank - 1) % size)
    work.wait()


def test_messages_of_a_pair_run_in_the_order_of_the_calls():
    for run in (receive_first, unequal):
        with pytest.raises(DeadlockError, match="batch_isend_irecv"):
            as_cuda(run, "nccl")
    for run, size in ((alternate, 2), (batched, 2), (ring, 4)):  # each pair of a ring of four has a stream of its own
        assert as_cuda(run, "nccl", size) == [None] * size
    for backend in ("simccl", "gloo"):
        assert as_cuda(receive_first, backend) == [None, None]


def test_nccl_knows_no_tags():
    def run():
        first, second = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
        if dist.get_rank():
            dist.recv(first, 0, tag=2)
            dist.recv(second, 0, tag=1)
        else:
            dist.send(first + 1, 1, tag=1)
            dist.send(second + 2, 1, tag=2)
        return first.item(), second.item()

    assert as_cuda(run, "nccl")[1] == (1.0, 2.0)


@pytest.mark.parametrize("gpus", [(1, 2), (3, 0), (2, 1)])
def test_any_gpu_of_ones_own(gpus):
    def run():
        torch.cuda.set_device(gpus[dist.get_rank()])
        x = on_gpu(1000) * (dist.get_rank() + 1)
        dist.all_reduce(x)
        dist.broadcast(x, 1)
        sent(x)
        return str(x.device), x[0].item()

    with simgpu.trace() as trace:
        assert as_cuda(run, "nccl") == [(f"cuda:{gpu}", 3.0) for gpu in gpus]
    assert {span.place for span in trace.spans if span.kind == "communication"} == {f"gpu{gpu}" for gpu in gpus}


def test_other_ranks_make_other_groups():
    def run(rank):
        half, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        mine, all_of_them = dist.new_subgroups(group_size=1, group=half)
        x = torch.full((1,), float(rank), device="sim")
        dist.all_reduce(x, group=dist.new_group([rank]))
        return mine.size(), len(all_of_them), x.item()

    assert simgpu.spawn(run) == [(1, 2, float(rank)) for rank in range(4)]


def test_sparse_tensors_of_the_host_are_added():
    def run(rank):
        x = torch.sparse_coo_tensor([[rank]], [1.0 + rank], (4,))
        dist.all_reduce(x)
        return x.to_dense().tolist()

    assert simgpu.spawn(run) == [[1.0, 2.0, 3.0, 4.0]] * 4
    with pytest.raises(simgpu.RankError, match="dense"):
        simgpu.spawn(lambda rank: dist.broadcast(torch.eye(2).to_sparse(), 0))
