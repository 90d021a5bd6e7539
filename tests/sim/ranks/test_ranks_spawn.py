"""Starting ranks: results, errors, and that nothing is left behind."""

import _thread
import contextlib
import gc
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo import eval_frame
from torch.autograd import detect_anomaly
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d
from torch.distributed.elastic.utils.store import barrier, synchronize
from torch.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel
from torch.nn.modules import module as every_module
from torch.optim.optimizer import register_optimizer_step_post_hook

import simgpu
from simgpu import RankError
from simgpu.hardware import MACHINES, cluster
from simgpu.ranks import interrupt, spawn
from simgpu.ranks.errors import Stopped

pytestmark = pytest.mark.usefixtures("gpus")


def left():
    """What a call to spawn must leave as it was."""
    return (
        threading.active_count(),
        distributed_c10d._world,
        sys.excepthook,
        dist.monitored_barrier,
        dist.init_process_group,
        dist.Reducer,
        dist.is_initialized(),
        torch.Tensor.to,
        torch.tensor,
        torch.sim.current_device(),
        torch.initial_seed(),
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_default_dtype(),
        warnings.showwarning,
        sys.stdout,
        sys.stderr,
        sys.unraisablehook,
    )


def test_results_come_in_the_order_of_ranks():
    def where(rank, word):
        assert dist.get_backend() == "simccl"
        return word, rank, dist.get_rank(), dist.get_world_size(), torch.sim.current_device(), torch.ones(1).to("sim")

    before = left()
    for size in (1, 3, 4):
        results = simgpu.spawn(where, ("a",), size)
        assert [result[:5] for result in results] == [("a", r, r, size, r) for r in range(size)]
        assert [str(result[5].device) for result in results] == [f"sim:{r}" for r in range(size)]
    assert len(simgpu.spawn(where, ("a",))) == 4
    assert left() == before


def test_a_function_typed_into_a_notebook_works():
    cell = {}
    exec(
        "def add(rank):\n    import torch.distributed as d\n    t = torch.tensor([rank])\n    d.all_reduce(t)\n"
        "    return t.item()\nimport torch",
        cell,
    )
    assert simgpu.spawn(cell["add"]) == [6] * 4


def test_a_store_that_a_program_makes_is_the_ranks_own():
    def pass_on(rank):
        store = dist.TCPStore("localhost", 29500, 4, rank == 0)
        if rank == 0:
            store.set("word", "a")
        dist.barrier()
        return store.get("word")

    assert simgpu.spawn(pass_on) == simgpu.spawn(pass_on) == [b"a"] * 4


def test_a_rank_waits_in_a_store_for_what_another_one_sets_later():
    def run(rank):
        store = dist.FileStore("meeting", 4) if rank % 2 else dist.FileStore("meeting")
        if rank == 0:
            word = store.get("word")
        elif rank == 1:
            store.wait(["word", "other"])
            word = store.multi_get(["word", "other"])[0]
        elif rank == 2:
            while not store.check(["other"]):
                time.sleep(0)
            word = store.get("word")
        else:
            store.set("word", "a"), store.set("other", "b")
            word = store.get("word")
        barrier(store, 4, "all")
        store.add("left", 1)
        while store.add("left", 0) < 4:
            time.sleep(0)
        return word, synchronize(store, str(rank).encode(), rank, 4, "numbers")

    assert simgpu.spawn(run) == simgpu.spawn(run) == [(b"a", [b"0", b"1", b"2", b"3"])] * 4


def test_a_rank_that_asks_again_and_again_lets_the_others_run():
    def run(rank):
        tensor = torch.ones(2, device="sim")
        work = dist.all_reduce(tensor, async_op=True) if rank < 3 else None
        while rank < 3 and not work.is_completed():
            time.sleep(0)
        if rank == 3:
            dist.all_reduce(tensor)
        return tensor.tolist()

    assert simgpu.spawn(run) == [[4, 4]] * 4


def test_a_program_that_joins_with_other_numbers_than_it_was_started_with_is_told():
    for wrong, word in (({"rank": 1, "world_size": 4}, "rank=0"), ({"rank": 0, "world_size": 8}, "world_size=4")):
        with pytest.raises(RankError, match=word):
            simgpu.spawn(lambda rank, wrong=wrong: dist.init_process_group("gloo", **wrong))
    assert simgpu.spawn(lambda rank: dist.init_process_group("gloo", rank=rank, world_size=4)) == [None] * 4


def test_an_error_names_its_rank_and_ends_the_others():
    went_on = []

    def fail(rank):
        dist.barrier()
        if rank == 2:
            raise KeyError("lost")
        dist.barrier()
        went_on.append(rank)

    before = left()
    with pytest.raises(RankError, match="rank 2 of 4 raised KeyError: 'lost'") as caught:
        simgpu.spawn(fail)
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert caught.value.rank == 2
    assert cause.__traceback__.tb_next.tb_next.tb_frame.f_code.co_name == "fail"
    assert went_on == []
    del cause, caught
    assert left() == before


def test_a_second_call_beside_the_first_is_refused():
    began, may_end, found = threading.Event(), threading.Event(), []

    def run(rank):
        began.set()
        may_end.wait()
        return rank

    before = left()
    beside = threading.Thread(target=lambda: found.extend(simgpu.spawn(run)))
    beside.start()
    began.wait()
    try:
        with pytest.raises(RuntimeError, match="another thread"):
            simgpu.spawn(print)
    finally:
        may_end.set()
        beside.join()
    assert found == [0, 1, 2, 3]
    assert left() == before


@pytest.mark.parametrize("where", ["running", "waiting", "in a callback"])
def test_ctrl_c_ends_all_ranks(where):
    def run(rank):
        if rank < 3:
            dist.barrier()
        if where == "waiting":
            dist.barrier()
        if where == "in a callback":  # from which Python raises nothing
            thing = threading.Event()
            weakref.finalize(thing, interrupt)
            del thing
        else:
            interrupt()
        while True:
            pass

    def interrupt():
        _thread.interrupt_main()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass

    threads = set(threading.enumerate())
    before, handler = left(), signal.signal(signal.SIGINT, signal.default_int_handler)  # a job beside ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            simgpu.spawn(run)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert set(threading.enumerate()) <= threads  # one of an earlier test may have ended meanwhile
    assert left()[1:] == before[1:]


def test_ctrl_c_ends_all_ranks_wherever_it_strikes_them(monkeypatch, capfd):
    """Told at a high rate, some ranks are struck while they hand on, of which a rank that waits must not be lost."""

    def run(rank):
        if rank < 3:
            dist.barrier()
        _thread.interrupt_main()
        while True:
            pass

    monkeypatch.setattr(spawn, "_LOOK_S", 0.001)
    monkeypatch.setattr(interrupt, "_TELL_S", 0.0001)
    monkeypatch.setattr(interrupt, "_END_S", 2)
    threads = set(threading.enumerate())
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(80):
            with pytest.raises(KeyboardInterrupt):
                simgpu.spawn(run)
            assert set(threading.enumerate()) <= threads
    finally:
        signal.signal(signal.SIGINT, handler)
    assert capfd.readouterr().err == ""


def test_ctrl_c_hands_on_for_ranks_that_it_struck_before_they_could(monkeypatch, capfd):
    def run(rank):
        if rank < 3:
            dist.barrier()
        _thread.interrupt_main()
        while True:
            pass

    def struck(world, number):
        if threading.current_thread() is not threading.main_thread():
            raise Stopped
        leave(world, number)

    leave = spawn.World._leave
    monkeypatch.setattr(spawn.World, "_leave", struck)
    monkeypatch.setattr(interrupt, "_END_S", 5)
    threads = set(threading.enumerate())
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            simgpu.spawn(run)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert set(threading.enumerate()) <= threads
    assert capfd.readouterr().err == ""


def test_each_rank_has_its_own_random_numbers_as_a_process_has():
    def draw(rank):
        torch.manual_seed(rank), random.seed(rank), np.random.seed(rank)
        first = random.gauss(0, 1)  # made with a second one, which Python keeps
        dist.barrier()  # the others seed theirs
        return torch.rand(2), torch.rand(2, device="sim").cpu(), [first, random.gauss(0, 1)], np.random.rand()

    for rank, (host, device, python, numpy) in enumerate(simgpu.spawn(draw)):
        torch.manual_seed(rank)
        assert torch.equal(host, torch.rand(2))
        assert torch.equal(device, torch.rand(2, generator=torch.Generator().manual_seed(rank)))
        alone = random.Random(rank)
        assert python == [alone.gauss(0, 1), alone.gauss(0, 1)]
        assert numpy == np.random.RandomState(rank).rand()


def test_rank_0_goes_on_with_the_random_numbers_of_the_program_and_others_draw_their_own():
    def draw(rank):
        return torch.rand(1).item(), torch.rand(1, device="sim:0").item(), random.random(), float(np.random.rand())

    torch.manual_seed(5), random.seed(6), np.random.seed(7)
    results = simgpu.spawn(draw)
    assert all(len(set(numbers)) == 4 for numbers in zip(*results, strict=True))
    assert results == simgpu.spawn(draw)
    (
        random.seed(60),
        np.random.seed(70),
    )  # torch's generator alone begins alike in each run
    assert results[1:] == simgpu.spawn(draw)[1:]
    random.seed(6), np.random.seed(7)
    assert results[0] == draw(0)
    torch.manual_seed(8)
    assert simgpu.spawn(draw)[1] != results[1]


def test_a_seed_in_a_rank_holds_on_all_its_gpus():
    def draw(rank, seed):
        torch.manual_seed(seed)
        return torch.rand(1).item(), torch.rand(1, device="sim:3").item()

    assert len(set(simgpu.spawn(draw, (4,)))) == 1
    assert len(set(simgpu.spawn(lambda rank: draw(rank, rank)))) == 4


def test_the_processes_that_a_rank_starts_have_its_environment():
    def tell(rank):
        dist.barrier()
        command = [sys.executable, "-S", "-c", "import os; print(os.environ['RANK'])"]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    assert simgpu.spawn(tell, nprocs=2) == [0, 1]


def test_each_rank_has_its_own_default_dtype_warnings_output_and_environment(monkeypatch):
    monkeypatch.setenv("PROGRAMS", "yes")
    child = [sys.executable, "-S", "-c", "import os; print(os.environ.get('RANKS'), 'PROGRAMS' in os.environ)"]

    def run(rank):
        others = dist.new_group([1, 2, 3])
        torch.set_default_dtype([torch.bfloat16, torch.float64][rank % 2])
        os.environ["RANKS"] = str(rank)
        if rank == 3:
            del os.environ["PROGRAMS"]
        with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(["ignore", "always"][rank % 2])
            layers = [torch.nn.Linear(2, 2)]
            dist.barrier()  # the others change theirs
            layers.append(torch.nn.Linear(2, 2))
            print("rank", rank)
            warnings.warn("told", stacklevel=1)
            if rank:
                dist.barrier(others)  # rank 0 leaves before them
        warnings.simplefilter("error")
        told = subprocess.run(child, capture_output=True, check=True, text=True).stdout
        return {layer.weight.dtype for layer in layers}, out.getvalue(), len(caught), told

    simgpu.spawn(lambda rank: None)  # what torch loads for it may add filters
    before = left(), list(warnings.filters), dict(os.environ)
    assert simgpu.spawn(run) == [
        ({dtype}, f"rank {rank}\n", rank % 2, f"{rank} {rank != 3}\n")
        for rank, dtype in enumerate([torch.bfloat16, torch.float64] * 2)
    ]
    assert (left(), list(warnings.filters), dict(os.environ)) == before


def test_what_a_rank_hangs_into_all_modules_and_optimizers_is_called_by_its_own():
    def run(rank):
        seen, model = [], nn.Linear(rank + 1, 1, device="sim")
        hooks = [
            every_module.register_module_forward_hook(lambda module, x, y: seen.append(module.in_features)),
            register_optimizer_step_post_hook(lambda *args: seen.append("step")),
        ]
        dist.barrier()
        y = model(torch.ones(1, rank + 1, device="sim"))
        dist.all_reduce(y.detach())
        torch.optim.SGD(model.parameters()).step()
        hooks[0].remove(), hooks[1].remove()
        return seen

    assert simgpu.spawn(run) == [[rank + 1, "step"] for rank in range(4)]
    assert not every_module._global_forward_hooks


def test_a_context_of_attention_or_of_anomalies_is_a_ranks_own():
    def now():
        return _cur_sdpa_kernel_backends(), torch.is_anomaly_enabled()

    def run(rank):
        with sdpa_kernel(SDPBackend.MATH if rank % 2 else SDPBackend.FLASH_ATTENTION), detect_anomaly(check_nan=False):
            dist.barrier()
            inside = now()
        dist.barrier()
        return inside, now()

    before = now()
    insides, afters = zip(*simgpu.spawn(run))
    assert insides == (([SDPBackend.FLASH_ATTENTION], True), ([SDPBackend.MATH], True)) * 2
    assert afters == (before,) * 4 == (now(),) * 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there CUDA's own GPUs have the name")
@pytest.mark.parametrize("leave", [True, False])
def test_ranks_say_cuda_until_the_last_of_them_has_said_it(leave):
    def run(rank):
        inside = simgpu.as_cuda()
        inside.__enter__()
        for turn in range(4):  # rank 0 leaves first
            if turn <= rank:
                assert torch.ones(1).cuda().is_cuda
            elif leave and turn == rank + 1:
                inside.__exit__(None, None, None)
            dist.barrier()
        if leave and rank == 3:
            inside.__exit__(None, None, None)
        return rank

    before = left()
    assert simgpu.spawn(run) == [0, 1, 2, 3]
    assert left() == before
    assert not torch.cuda.is_available()


def test_no_tensor_is_kept_where_a_collective_is_waited_for_by_nobody():
    def run(rank):
        functional.all_reduce(torch.ones(2, device="sim"), "sum", dist.group.WORLD)
        return torch.ones(2, device="sim")

    results = [weakref.ref(tensor) for tensor in simgpu.spawn(run)]
    gc.collect()
    assert [result() for result in results] == [None] * 4
    assert [torch.sim.memory_allocated(i) for i in range(4)] == [0] * 4


def test_a_program_may_end_its_groups_itself():
    def run(rank):
        pair = dist.new_group([0, 1])
        if rank < 2:
            dist.destroy_process_group(pair)
        dist.barrier()
        dist.destroy_process_group()

    assert simgpu.spawn(run) == [None] * 4
    assert simgpu.spawn(run) == [None] * 4  # in new groups of the same names


def test_a_program_written_for_torchrun_runs_as_it_is():
    def main(rank):
        dist.init_process_group("nccl", init_method="env://")
        local = int(os.environ["LOCAL_RANK"])
        torch.accelerator.set_device_index(local)
        tensor = torch.ones(1, device=f"sim:{local}") * int(os.environ["RANK"])
        dist.all_reduce(tensor)
        assert int(os.environ["WORLD_SIZE"]) == dist.get_world_size() == 4
        with pytest.raises(ValueError, match="twice"):
            dist.init_process_group("nccl")
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        dist.barrier()
        dist.destroy_process_group()
        return tensor.item()

    before = dict(os.environ)
    assert simgpu.spawn(main) == [6.0] * 4
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("kind", "says", "ranks", "run"),
    [
        *((ValueError, "ranks", wrong, print) for wrong in (0, 5, -1)),
        (RankError, "cannot start", 4, lambda rank: simgpu.spawn(print)),
        (RankError, "exit code 3", 4, lambda rank: sys.exit(3) if rank == 1 else None),
    ],
)
def test_ranks_without_gpus_or_in_ranks_or_that_leave_the_program_are_refused(kind, says, ranks, run):
    with pytest.raises(kind, match=says):
        simgpu.spawn(run, nprocs=ranks)


def test_the_backend_is_of_use_in_ranks_only_and_ranks_with_gpus_only():
    simgpu.spawn(lambda rank: None)
    with pytest.raises(RuntimeError, match="joins simulated ranks"):
        dist.init_process_group("simccl", store=dist.HashStore(), rank=0, world_size=1)
    simgpu.disable()
    with pytest.raises(RuntimeError, match="enable"):
        simgpu.spawn(print)


def test_ranks_work_without_a_clock():
    simgpu.enable(3, clock=False)

    def total(rank):
        tensor = torch.full((2,), rank + 1.0, device="sim", requires_grad=True)
        given = tensor.detach().clone()
        future = dist.all_reduce(given, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
        (tensor * 2).sum().backward()
        if rank == 0:
            dist.send(given, 1)
        elif rank == 1:
            dist.recv(given, 0)
        return future.wait().tolist()

    assert simgpu.spawn(total) == [[12.0, 12.0]] * 3


@pytest.mark.skipif(not hasattr(eval_frame, "get_eval_frame_isolate_recompiles_id"), reason="needs torch 2.13")
def test_what_a_rank_compiles_is_its_own():
    """torch builds a rank's number into the code, and by itself recompiles a function 8 times at most."""

    def numbered(x):
        return x + 10 * dist.get_world_size() + dist.get_rank()

    compiled = torch.compile(numbered, fullgraph=True, backend="eager")
    simgpu.enable(9, clock=False)
    for size in (2, 9):
        for where in ("cpu", "sim"):
            found = simgpu.spawn(lambda rank, where=where: compiled(torch.zeros(1, device=where)).item(), nprocs=size)
            assert found == [10 * size + rank for rank in range(size)]


def test_a_tensor_of_another_node_is_not_lost_when_gpus_are_taken_away():
    simgpu.enable(machine=cluster(MACHINES["DGX-H100"], 2))
    left = simgpu.spawn(lambda rank: torch.ones(1, device="sim") if rank == 15 else None)[15]
    with pytest.raises(RuntimeError, match="sim:7"):
        simgpu.enable(1)
    del left
    simgpu.enable(1)


def test_parameters_that_a_result_would_send_gradients_to_are_told():
    simgpu.enable(2)
    results = simgpu.spawn(lambda rank: torch.ones(1, device="sim", requires_grad=True).cpu())
    with pytest.raises(RuntimeError, match="delete them first, and what has a grad_fn that leads to them"):
        simgpu.enable(1)
    del results
    simgpu.enable(1)
