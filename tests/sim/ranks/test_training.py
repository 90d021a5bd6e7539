"""Unmodified programs of `torch.distributed` on 2, 4 and 8 simulated ranks: see `cases`."""

import io
import itertools
import math
import random
import threading
from functools import partial

import cases
import pytest
import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty
from torch.distributed.pipelining import ScheduleInterleavedZeroBubble
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, rand, randn
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.nn.functional import dropout
from torch.nn.parallel.distributed import DistributedDataParallel, _MixedPrecision

import simgpu
from d2lmini.trainer import Trainer
from d2lmini.trainer.history import LossLog
from simgpu.torch_glue.fsdp import Chunks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ranks", [2, 4, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("case", cases.CASES, ids=[case.name for case in cases.CASES])
def test_ranks_equal_one_process(case, ranks):
    results, sent, *times = cases.ran(case, ranks)
    wanted = [t.detach() for t in case.alone()]
    for result in results:
        torch.testing.assert_close(result, wanted, rtol=case.tolerance, atol=case.tolerance)
    for collective, nbytes in (case.sent(ranks) if case.sent else {}).items():
        assert sent[collective] == nbytes, collective
    if ranks > 2:
        return
    again, *others = cases.ran(case, ranks)
    assert others == [sent, *times]  # every message, to the picosecond
    for first, second in zip(results, again, strict=True):
        assert all(map(torch.equal, first, second))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit, as torch.distributed.nn uses it
def test_ddps_own_mixed_precision_warns_and_is_right_from_the_second_step_on():
    """torch sums other memory in the first step than it wrote the gradients to: its own fault, on every device."""
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))

    def gradients(rank):
        torch.manual_seed(0)
        net = torch.nn.Linear(8, 4).to("sim")
        with pytest.warns(UserWarning, match="mixed_precision"):
            model = DistributedDataParallel(net, mixed_precision=_MixedPrecision(torch.bfloat16, torch.bfloat16))
        for _ in range(2):
            model.zero_grad()
            model(x[8 * rank : 8 * rank + 8].to("sim")).float().square().mean().backward()
        return net.weight.grad.cpu()

    torch.manual_seed(0)
    alone = torch.nn.Linear(8, 4)
    alone(x).square().mean().backward()
    simgpu.enable(2, gpu="V100-SXM2-16GB", link="NVLink2")
    for got in simgpu.spawn(gradients):
        torch.testing.assert_close(got, alone.weight.grad, rtol=0.02, atol=0.005)


@pytest.mark.filterwarnings("ignore")
def test_a_zero_bubble_schedule_equals_one_process_and_adds_up_gradients_in_one_order():
    """torch keeps what is to be added up in sets, whose order is that of addresses."""

    def ran():
        simgpu.enable(2, gpu="V100-SXM2-16GB", link="NVLink2")
        with simgpu.trace() as trace:
            found = simgpu.spawn(partial(cases.pipeline, schedule=ScheduleInterleavedZeroBubble, each=2))
        return found[0], trace.spans

    results, spans = ran()
    torch.testing.assert_close(results, [t.detach() for t in cases.alone(lambda: cases.deep(16))()])
    assert ran()[1] == spans


@pytest.mark.filterwarnings("ignore")
def test_two_pairs_of_ranks_cut_a_sequence_each_and_one_attends_when_the_other_has_left():
    def attend(rank):
        pairs = init_device_mesh("sim", (2, 2), mesh_dim_names=("a", "b"))
        parts = [x.detach().to("sim") for x in cases.queries()]
        with context_parallel(pairs["b"], buffers=parts, buffer_seq_dims=[2] * 3):
            if rank >= 2:
                dist.barrier()
            found = cases.attended(*(part.clone().requires_grad_() for part in parts))
            found = context_parallel_unshard(pairs["b"], found, [2] * 4)
        if rank < 2:
            dist.barrier()
        return [t.cpu() for t in found]

    simgpu.enable(4)
    for found in simgpu.spawn(attend):
        torch.testing.assert_close(found, cases.attended(*cases.queries()), rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_four_shards_goes_on_in_two(tmp_path):
    def begun():
        model = cases.sharded(cases.network().to("sim"))
        return model, cases.optimizer(model)

    def save(rank):
        model, optimizer = begun()
        cases.steps(model, *cases.share(), optimizer)
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, whole if rank == 0 else {}, options=options)
        saved = checkpoint.async_save(dict(zip("mo", get_state_dict(model, optimizer))), checkpoint_id=tmp_path)
        cases.steps(model, *cases.share(), optimizer)  # what goes on meanwhile is not what was saved
        saved.result()

    def load(rank):
        model, optimizer = begun()
        states = get_state_dict(model, optimizer)
        checkpoint.load(dict(zip("mo", states)), checkpoint_id=tmp_path)
        set_state_dict(model, optimizer, model_state_dict=states[0], optim_state_dict=states[1])
        cases.steps(model, *cases.share(), optimizer)
        return [p.full_tensor().detach().cpu() for p in model.parameters()]

    simgpu.enable(4)
    simgpu.spawn(save)
    alone = cases.network()
    optimizer = cases.optimizer(alone)
    for _ in range(2):
        cases.steps(alone, *cases.samples(), optimizer)
    for result in simgpu.spawn(load, nprocs=2):
        torch.testing.assert_close(result, [p.detach() for p in alone.parameters()])


@pytest.mark.filterwarnings("ignore")
def test_what_a_rank_remembers_of_its_last_checkpoint_is_its_own(tmp_path):
    def run(rank):
        mesh = init_device_mesh("sim", (dist.get_world_size(),))
        for turn in range(3):
            x = distribute_tensor(torch.arange(8.0, device="sim") + turn, mesh, [Shard(0)])
            place, y = tmp_path / f"{len(mesh.mesh)}-{turn}", torch.zeros_like(x)
            planner = checkpoint.DefaultSavePlanner(enable_plan_caching=True)
            checkpoint.save({"x": x}, checkpoint_id=place, planner=planner)
            checkpoint.load({"x": y}, checkpoint_id=place)
            assert torch.equal(y.full_tensor().cpu(), torch.arange(8.0) + turn)

    simgpu.enable(4)
    for ranks in (4, 2):
        simgpu.spawn(run, nprocs=ranks)


@pytest.mark.filterwarnings("ignore")
def test_a_rank_that_waits_for_others_while_it_compiles_lets_them_compile():
    def run(rank):
        x = distribute_tensor(torch.arange(4.0, device="sim"), init_device_mesh("sim", (2,)), [Shard(0)])
        gathered = x.redistribute(placements=[Replicate()], async_op=True).to_local()
        return torch.compile(torch.square, backend="aot_eager", fullgraph=True)(gathered).tolist()

    simgpu.enable(2)
    assert simgpu.spawn(run) == [[0, 1, 4, 9]] * 2


def test_random_numbers_of_replicas_agree_and_those_of_shards_differ():
    def draw(rank):
        mesh = init_device_mesh("sim", (2, 2))
        torch.manual_seed(3)
        replica = randn(4, 4, device_mesh=mesh, placements=[Replicate(), Replicate()])
        mixed = randn(4, 4, device_mesh=mesh, placements=[Replicate(), Shard(0)])
        ones = distribute_tensor(torch.ones(64, 8, device="sim"), mesh, [Shard(0), Replicate()])
        return [t.to_local().cpu() for t in (replica, mixed, dropout(ones))] + [torch.rand(1, device="sim").item()]

    simgpu.enable(4)
    (a, b, c, d), again = simgpu.spawn(draw), simgpu.spawn(draw)[0]
    torch.manual_seed(3)
    for result in (a, b, c, d):
        assert torch.equal(result[0], torch.randn(4, 4, generator=torch.Generator().manual_seed(3)))
        assert result[3] == a[3]
    assert torch.equal(a[1], c[1])
    assert torch.equal(b[1], d[1])
    assert not torch.equal(a[1], b[1])
    assert torch.equal(a[2], b[2])
    assert not torch.equal(a[2], c[2])
    assert 0.3 < (a[2] == 0).float().mean() < 0.7
    assert all(map(torch.equal, a[:3], again[:3]))


def test_random_numbers_of_uneven_shards_keep_torchs_promise():
    """Of one process they are not: see reference/simulated-ranks.md."""

    def draw(rank):
        mesh = init_device_mesh("sim", (4,))
        torch.manual_seed(3)
        whole = [rand(7, 3, device_mesh=mesh, placements=[Shard(dim)]).full_tensor().cpu() for dim in (0, 1, 0)]
        return [*whole, rand(5, device_mesh=mesh, placements=[Replicate()]).to_local().cpu()]

    simgpu.enable(4)
    first, *others = simgpu.spawn(draw)
    for found in (*others, simgpu.spawn(draw)[0]):
        assert all(map(torch.equal, first, found))
    drawn = torch.cat([t.flatten() for t in first])
    assert len(drawn.unique()) == len(drawn) == 3 * 21 + 5  # no shard, and no call, repeats another's


def test_results_of_dtensors_are_on_their_own_ranks_mesh():
    """What torch finds out about an operation once serves all ranks, but for their places in the mesh."""

    def run(rank):
        mesh = init_device_mesh("sim", (2, 2), mesh_dim_names=("a", "b"))
        x = distribute_tensor(torch.arange(32.0, device="sim").view(8, 4), mesh, [Shard(0), Shard(1)])
        parts = torch._foreach_add([x, x.redistribute(placements=[Replicate(), Shard(0)])], 1.0)
        return [(part.device_mesh.get_coordinate(), (part * 2).full_tensor().cpu()) for part in [x + x, *parts]]

    simgpu.enable(4)
    x = torch.arange(32.0).view(8, 4)
    for rank, found in enumerate(simgpu.spawn(run)):
        for (place, result), wanted in zip(found, [4 * x, 2 * x + 2, 2 * x + 2], strict=True):
            assert list(place) == [rank // 2, rank % 2]
            assert torch.equal(result, wanted)


def test_parts_of_different_lengths_are_redistributed_and_saved():
    """Rank 3 has no row of three."""

    def run(rank):
        whole, mesh = torch.arange(21.0, device="sim").view(3, 7), init_device_mesh("sim", (2, 2))
        x, file = distribute_tensor(whole, mesh, [Shard(0), Shard(0)]), io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        again, columns = torch.load(file, weights_only=False), x.redistribute(placements=[Shard(1)] * 2)
        return len(again.to_local()), again.full_tensor().cpu(), columns.full_tensor().cpu()

    simgpu.enable(4)
    for rank, (rows, *results) in enumerate(simgpu.spawn(run)):
        assert rows == (rank < 3)
        assert all(torch.equal(result, torch.arange(21.0).view(3, 7)) for result in results)


@pytest.mark.filterwarnings("ignore")
def test_what_fsdp1_keeps_once_a_process_each_rank_has_for_itself():
    def run(rank):
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        model = FullyShardedDataParallel(torch.nn.Linear(3, 3).to("sim"), use_orig_params=True)
        optimizer, scaler = torch.optim.Adam(model.parameters()), ShardedGradScaler("sim")
        scaler.scale(model(torch.ones(2, 3, device="sim")).sum()).backward()
        scaler.step(optimizer)
        state = FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            saved = model.state_dict()
        with FullyShardedDataParallel.summon_full_params(model):
            weight = model.weight.detach().cpu()
        return [state[name]["exp_avg"].cpu() for name in ("weight", "bias")], saved, weight

    simgpu.enable(2)
    (averages, saved, weight), (_, none, _) = simgpu.spawn(run)
    assert (saved["weight"].device.type, none) == ("cpu", {})
    assert torch.equal(saved["weight"], weight)
    for average, shape in zip(averages, [(3, 3), (3,)], strict=True):
        torch.testing.assert_close(average, torch.full(shape, 0.2))  # a tenth of each gradient, which is 2


def test_the_chunks_of_a_parameter_are_torchs():
    for shape, dim, count in itertools.product([(7, 3), (0, 3), (8, 2), (1, 6)], (0, 1), (1, 2, 3, 4, 9)):
        tensor = torch.arange(math.prod(shape)).view(shape)
        ours, theirs = Chunks(tensor, count, dim), _chunk_with_empty(tensor, count, dim)
        assert all(map(torch.equal, map(ours.__getitem__, range(count)), theirs))


def test_the_trainer_runs_on_ranks():
    def train(rank, engine):
        x, y = cases.samples()
        optimizer = partial(torch.optim.SGD, lr=0.1)
        trainer = Trainer(cases.network(), torch.nn.MSELoss(), optimizer, engine=engine)
        for _ in range(cases.STEPS):
            trainer.step(x, y)
        return [p.detach().cpu() for p in trainer.replicas[0].parameters()]

    alone = cases.network()
    cases.steps(alone, *cases.samples(), torch.optim.SGD(alone.parameters(), lr=0.1))
    simgpu.enable(3)
    for result in simgpu.spawn(train, ("ddp",)):
        torch.testing.assert_close(result, [p.detach() for p in alone.parameters()])
    with pytest.raises(RuntimeError, match="between processes"):
        simgpu.spawn(train, ("allreduce",))


def test_the_trainer_takes_as_long_on_a_slow_machine_and_with_other_numbers(monkeypatch):
    monkeypatch.setattr(LossLog, "SECONDS", 0.05)  # between two readings of the losses

    class Batches:
        def __iter__(self):
            for _ in range(12):
                threading.Event().wait(pause)  # time.sleep would take simulated time
                yield cases.samples()

    def fit(rank):
        optimizer = partial(torch.optim.SGD, lr=0.1)
        return Trainer(cases.network(), torch.nn.MSELoss(), optimizer, engine="ddp").fit(Batches(), 1)

    found = []
    for pause in (0, 0.02):
        random.seed(int(1000 * pause))
        simgpu.enable(3)
        with simgpu.trace() as trace:
            simgpu.spawn(fit)
        found.append([(span.name, span.start, span.end) for span in trace.spans])
    assert found[0] == found[1]


def test_parameters_that_differ_between_ranks_are_told():
    def run(rank):
        dist.barrier()
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2 + (rank == 1), 2).to("sim"))

    simgpu.enable(2)
    with pytest.raises(RuntimeError, match="rank 1"):
        simgpu.spawn(run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "fully_shard",
        "DTensor",
        "parallelize_module",
        "SequenceParallel",
        "loss_parallel",
        "attention of DTensors",
        "context_parallel",
    ],
)
def test_without_numbers_ranks_send_the_same_messages_at_the_same_times(name):
    (case,) = (case for case in cases.CASES if case.name == name)
    runs = []
    for shapes_only in (False, True):
        simgpu.enable(2, gpu="V100-SXM2-16GB", link="NVLink2", shapes_only=shapes_only)
        with simgpu.trace() as trace:
            simgpu.spawn(lambda rank: case.run(rank) and None)
        runs.append([span for span in trace.spans if span.kind == "communication"])
    assert len(runs[0]) > 8
    assert runs[0] == runs[1]


def test_operations_of_collectives_that_torch_makes_later_are_no_kernels(gpus):
    """As ``_wrap_tensor_autograd``, made when a program first imports the functional collectives."""
    library = torch.library.Library("_c10d_functional", "FRAGMENT")
    library.define("made_later(Tensor x) -> Tensor")
    library.impl("made_later", lambda x: x.clone(), "CPU")
    with simgpu.trace() as trace:
        made = torch.ops._c10d_functional.made_later(torch.ones(2, device="sim"))
    assert made.tolist() == [1, 1]
    assert [span.name for span in trace.spans if span.kind == "operation"] == ["fill_"]


def test_what_full_tensor_returns_has_come():
    def run(rank):
        mesh = init_device_mesh("sim", (2,))
        whole = [distribute_tensor(torch.ones(2**18), mesh, [Shard(0)]).full_tensor() for _ in range(2)]
        return [tensor.cpu() for tensor in whole]

    simgpu.enable(2, gpu="V100-SXM2-16GB", link="NVLink2")
    with simgpu.trace() as trace:
        simgpu.spawn(run)
    there = [span.end for span in trace.spans if span.name.startswith("all_gather")]
    copies = [span.start for span in trace.spans if span.name == "copy gpu0→host" and span.kind == "copy"]
    assert there
    assert copies[-2] >= max(there)
