"""Programs written for CUDA on ranks: names imported before, devices by number, counts of collectives, and refusals."""

import copy
import io
import pickle
import time
import warnings
from importlib import import_module

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.cuda import current_device as which
from torch.cuda import is_available, max_memory_allocated, set_device, synchronize
from torch.distributed import get_backend, init_process_group, is_nccl_available, new_group
from torch.distributed.tensor.debug import CommDebugMode

import simgpu


@pytest.fixture(autouse=True)
def four_gpus():
    simgpu.enable(4)


def test_names_imported_before():
    def run(rank):
        init_process_group("nccl")
        set_device(rank)
        x = torch.ones(1000, device="cuda")
        dist.all_reduce(x, group=new_group([0, 1]))
        synchronize()
        return get_backend(), is_available(), which(), max_memory_allocated() >= 4000, is_nccl_available()

    outside = is_available(), is_nccl_available()  # a build for CUDA has NCCL, with or without a GPU
    with simgpu.as_cuda():
        assert simgpu.spawn(run, nprocs=2) == [("nccl", True, rank, True, True) for rank in range(2)]
    assert (is_available(), is_nccl_available()) == outside
    with pytest.raises(ValueError, match="not been initialized"):
        get_backend()


def zeros(n: int) -> torch.Tensor:
    return torch.zeros(n)


@pytest.mark.filterwarnings("ignore")
def test_what_programs_of_cuda_do():
    with simgpu.as_cuda():
        device = torch.device(2)
        assert (str(device), str(torch.ones(1, device=2).device)) == ("cuda:2", "cuda:2")
        assert isinstance(device, torch.device)
        assert type(device) == torch.device  # noqa: E721 as programs compare
        assert pickle.loads(pickle.dumps(device)) == device
        file = io.BytesIO()
        torch.save({"device": device, "x": torch.ones(2, device=device)}, file)
        file.seek(0)
        assert torch.load(file)["x"].device == device
        with torch.device("cuda:1"):
            assert torch.ones(1).device == torch.device(1)
        assert torch.jit.script(zeros)(2).tolist() == [0.0, 0.0]
        import_module("torch.distributed.optim")  # which calls torch.jit.script

        gpu, host = [torch.ones(2, device="cuda:0"), torch.ones(3, device="cuda:1")], [torch.zeros(2), torch.zeros(3)]
        torch._foreach_copy_(host, gpu)
        torch._foreach_copy_(gpu, [2 * x for x in host])
        assert [x.tolist() for x in host + gpu] == [[1.0] * 2, [1.0] * 3, [2.0] * 2, [2.0] * 3]

        before = simgpu.now()
        torch.cuda._sleep(simgpu.machine().gpu.clock_hz)
        torch.cuda.synchronize()
        assert simgpu.now() - before == pytest.approx(1, abs=1e-3)
        for thing in (type(gpu[0]), torch.cuda.current_stream(), torch.cuda.Event):
            assert "sim" not in repr(thing)
    assert str(torch.device(2)) == "sim:2"


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_copied_module_starts_without_gradients(device):
    net = nn.Linear(2, 1).to(device)
    net(torch.ones(1, 2, device=device)).sum().backward()
    assert copy.deepcopy(net).weight.grad is None
    leaf = torch.ones(2, device=device, requires_grad=True)
    leaf.sum().backward()
    assert copy.deepcopy(leaf).grad.tolist() == [1.0, 1.0]


def test_collectives_are_counted():
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch 2.12 has the second alone

    def run(rank):
        x, functional = torch.ones(4, device="sim"), torch.distributed._functional_collectives
        with CommDebugMode() as mode:
            dist.all_reduce(x)
            dist.broadcast(x, 0)
            gather(torch.empty(16, device="sim"), x)
            functional.all_reduce(x, "sum", dist.group.WORLD).sum()
        names = {str(name).rpartition(".")[2]: count for name, count in mode.get_comm_counts().items()}
        return names, x.tolist(), mode.get_total_counts()

    wanted = {"allreduce_": 1, "broadcast_": 1, "_allgather_base_": 1, "all_reduce": 1}
    assert simgpu.spawn(run) == [(wanted, [4.0] * 4, 4)] * 4


def test_a_result_that_is_given():
    def run(rank):
        out, name = torch.zeros(8, device="sim"), dist.group.WORLD.group_name
        torch.ops._c10d_functional.all_gather_into_tensor_out(torch.full((2,), rank, device="sim"), 4, name, out=out)
        return out.tolist()

    assert simgpu.spawn(run) == [[0, 0, 1, 1, 2, 2, 3, 3]] * 4


@pytest.mark.parametrize("change", [lambda: simgpu.enable(2), simgpu.disable])
def test_gpus_stay_while_ranks_run(change):
    with pytest.raises(simgpu.RankError, match="while simulated ranks run"):
        simgpu.spawn(lambda rank: change() if rank == 1 else dist.barrier())
    assert simgpu.spawn(lambda rank: rank) == [0, 1, 2, 3]


@pytest.mark.parametrize("wrong", ["2", 1.5, 0, 5, True])
def test_a_number_of_ranks_is_a_whole_number(wrong):
    with pytest.raises(ValueError, match="ranks"):
        simgpu.spawn(print, nprocs=wrong)


def in_a_graph(collective, *received):
    """Return the names of operations that torch warns about in backward, and the gradient."""
    y = (x := torch.ones(2, requires_grad=True)) * 2
    collective(*received, y)
    loss = sum(tensor.sum() for tensor in [*received, y] if tensor.requires_grad)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss.backward()
    told = [str(warning.message) for warning in caught]
    assert all("autograd kernel was not registered" in text for text in told)
    return [text.partition(":: ")[0].partition(": ")[0] for text in told], x.grad.tolist()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_collective_inside_a_graph_warns_as_torchs(tmp_path):
    cases = [
        lambda y: dist.all_reduce(y),
        lambda y: dist.all_reduce(y.detach()),
        lambda y: dist.broadcast(y, 0),
        lambda y: dist.reduce(y, 0),
        lambda y: dist.all_reduce(y[0]),
        lambda out, y: dist.all_to_all_single(out, y),
    ]  # not all_gather_into_tensor: gloo's thread writes into views of its result, which autograd refuses by chance

    def run():
        out = [[]] * 5 + [[torch.zeros(2)]]
        return [in_a_graph(case, *given) for case, given in zip(cases, out)]

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        real = run()
    finally:
        dist.destroy_process_group()
    assert simgpu.spawn(lambda rank: run(), nprocs=1) == [real]
    assert [len(told) for told, _ in real] == [1, 0, 1, 0, 0, 0]


def test_the_current_device_is_a_new_processs_once_the_program_joins():
    def joins(rank):
        before = str(torch.ones(1).cuda().device)
        init_process_group("nccl")
        return before, str(torch.ones(1).cuda().device)

    def sets(rank):
        set_device(1 - rank)
        init_process_group("nccl")
        return which()

    with simgpu.as_cuda():
        assert simgpu.spawn(joins, nprocs=2) == [("cuda:0", "cuda:0"), ("cuda:1", "cuda:0")]
        assert simgpu.spawn(sets, nprocs=2) == [1, 0]


def test_a_barrier_is_on_the_gpu_that_the_group_used_first_and_the_host_waits():
    def run(rank):
        init_process_group("nccl")
        dist.barrier()  # rank mod GPUs, whatever is current
        dist.all_reduce(torch.ones(1, device=f"cuda:{1 - rank}"))
        if rank == 0:
            time.sleep(5)
        dist.barrier()
        return simgpu.now() >= 5

    with simgpu.as_cuda(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert simgpu.spawn(run, nprocs=2) == [True, True]
