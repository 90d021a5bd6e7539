"""Collectives over tensors: against torch on inputs that betray misrouting, and the ledger against the schedule."""

import math
from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from d2lmini import devices
from d2lmini.collectives import executor, on_devices, schedules
from d2lmini.collectives.buckets import plan_buckets
from d2lmini.collectives.on_devices import allreduce

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)
each_algorithm = pytest.mark.parametrize("algorithm", schedules.ALLREDUCE)
quick = settings(max_examples=25)


def telling(world_size, n, dtype=torch.int64):
    """Return one vector a rank whose sum tells which ranks were counted, and at which position."""
    base = 10 if world_size <= 15 else 2  # digit r of the first element's sum counts rank r; or bit r, modulo 2**64
    marks = torch.tensor(base).pow(torch.arange(world_size))  # 2**63 wraps to −2**63
    return [((torch.arange(n) + 1) * mark).to(dtype) for mark in marks]


def small(world_size, n, dtype):
    """Return vectors whose sums are exact in every type."""
    return [((torch.arange(n) + rank) % 3 - 1).to(dtype) for rank in range(world_size)]


@pytest.fixture
def switched():
    simgpu.enable(machine="8xH200")
    yield [torch.device("sim", i) for i in range(8)]
    simgpu.disable()


# -- all-reduce ------------------------------------------------------------------------------------------------------


@each_algorithm
@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 6, 8, 13, 16, 64])
def test_fewer_elements_than_ranks_and_remainders(algorithm, world_size):
    for n in {0, 1, world_size - 1, world_size, world_size + 1, 3 * world_size - 1}:
        data = telling(world_size, n)
        want = torch.stack(data).sum(0)
        allreduce(data, algorithm)
        assert all(torch.equal(tensor, want) for tensor in data), n


@each_algorithm
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type(dtype, algorithm):
    for world_size, n in ((1, 3), (2, 7), (3, 2), (4, 7), (7, 10)):
        data = small(world_size, n, dtype)
        want = torch.stack(data).sum(0).to(dtype)
        allreduce(data, algorithm)
        for tensor in data:
            torch.testing.assert_close(tensor, want, rtol=0, atol=0)


@each_algorithm
@pytest.mark.parametrize("world_size", [2, 3, 6, 8])
def test_ranks_agree_to_the_bit(algorithm, world_size):
    torch.manual_seed(0)
    data = [torch.randn(1000) * 10.0 ** torch.randint(-3, 4, (1000,)) for _ in range(world_size)]
    exact = [math.fsum(column) for column in torch.stack(data).double().T.tolist()]
    size = torch.stack(data).abs().sum(0)
    allreduce(data, algorithm)
    assert all(torch.equal(tensor, data[0]) for tensor in data)
    error = (data[0].double() - torch.tensor(exact, dtype=torch.float64)).abs()
    assert (error <= (world_size - 1) * 2**-24 * size * 1.001).all()  # Higham 1993


@each_algorithm
def test_in_place_on_tensors_of_any_layout(algorithm):
    wholes = [torch.arange(60.0).reshape(6, 10) * 10**rank for rank in range(3)]
    views = [whole.T[1::2, ::2] for whole in wholes]
    before, want = [whole.clone() for whole in wholes], torch.stack([v.clone() for v in views]).sum(0)
    allreduce(views, algorithm)
    for whole, old in zip(wholes, before):
        assert torch.equal(whole.T[1::2, ::2], want)
        old.T[1::2, ::2] = want
        assert torch.equal(whole, old), "something beside the view was written"


@pytest.mark.parametrize("kind", ["cpu", "sim"])
@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_a_rank_may_send_what_it_receives_into(kind, order):
    """Whatever the order in which the messages of a step are listed, each carries what was there before the step."""
    sends = (
        schedules.Send(0, 1, 0, 1, "reduce"),
        schedules.Send(2, 0, 0, 1, "reduce"),
        schedules.Send(1, 2, 0, 1, "copy"),
    )
    step = tuple(sends[i] for i in order)
    simgpu.enable(3)
    first, second, third = telling(3, 5)
    data = [x.to(kind if kind == "cpu" else f"sim:{rank}") for rank, x in enumerate(telling(3, 5))]
    executor.execute(schedules.Schedule("around", 3, 1, (step,)), data)
    data = [tensor.cpu() for tensor in data]
    simgpu.disable()
    assert all(map(torch.equal, data, [first + third, first + second, second]))


@pytest.mark.parametrize("way", [0, 1])  # rows; columns, which are interleaved in memory without a common element
def test_parts_of_one_matrix_are_apart(way):
    matrix = torch.arange(12.0).reshape(3, 4)
    want = matrix.sum(way, keepdim=True).expand(3, 4).clone()
    allreduce(list(matrix.unbind(way)))
    assert torch.equal(matrix, want)


# -- the other collectives -------------------------------------------------------------------------------------------


@quick
@given(world_size=st.integers(1, 24), n=st.integers(0, 60), seed=st.integers(0, 10**6))
def test_the_other_collectives(world_size, n, seed):
    root, old = seed % world_size, telling(world_size, n)
    total, root_old = torch.stack(old).sum(0), [old[root]] * world_size

    def after(make, *root):
        data = [tensor.clone() for tensor in old]
        on_devices.run(make(world_size, *root), data)
        return data

    def chunks(tensors):
        """Return each rank's own chunk of its tensor."""
        return [tensor.tensor_split(world_size)[rank] for rank, tensor in enumerate(tensors)]

    scattered, every_chunk = after(schedules.scatter, root), torch.cat(chunks(old))
    assert all(map(torch.equal, after(schedules.broadcast, root), root_old))
    assert torch.equal(after(schedules.reduce, root)[root], total)
    assert all(map(torch.equal, [*chunks(scattered), scattered[root]], [*chunks(root_old), old[root]]))
    assert torch.equal(after(schedules.gather, root)[root], every_chunk)
    assert all(torch.equal(tensor, every_chunk) for tensor in after(schedules.all_gather))
    assert all(map(torch.equal, chunks(after(schedules.reduce_scatter)), chunks([total] * world_size)))


# -- buckets ---------------------------------------------------------------------------------------------------------


def test_a_bucket_is_as_full_as_it_can_be():
    tensors = [torch.zeros(n) for n in (10, 10, 10, 100, 1)]
    assert plan_buckets(tensors, 80) == [[0, 1], [2], [3], [4]]
    assert plan_buckets(tensors, 10**6) == [[0, 1, 2, 3, 4]]
    mixed = [torch.zeros(1), torch.zeros(1, dtype=torch.int64), torch.zeros(1)]
    assert plan_buckets(mixed, 100) == [[0, 2], [1]]


# -- what does not fit -----------------------------------------------------------------------------------------------

ONE = torch.ones(4)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ([torch.ones(4), torch.ones(4), torch.ones(5)], r"rank 2: .* shape .* \[4\], got \[5\]"),
        ([torch.ones(4), torch.ones(2, 2)], "rank 1: .* shape"),
        ([torch.ones(4), torch.ones(4).double()], "rank 1: .* type"),
        ([torch.ones(4), torch.ones(4, device="meta")], "rank 1: .* device"),
        ([torch.ones(4), 7], "rank 1: .* int"),
        ([ONE, ONE], "rank 1: .* shares memory"),
        ([ONE[:3], torch.ones(3), ONE[1:]], "rank 2: .* shares memory"),
        ([torch.ones(4), torch.ones(1).expand(4)], "rank 1: elements"),
        ([], "got 0"),
    ],
)
def test_the_rank_that_does_not_fit_is_named(tensors, says):
    with pytest.raises(ValueError, match=says):
        allreduce(tensors)


@pytest.mark.parametrize(("device", "says"), [("sim:3", r"own, got sim:3"), ("cpu", r"sim, got cpu")])
def test_two_ranks_on_one_gpu(switched, device, says):
    with pytest.raises(ValueError, match=f"rank 1: .* {says}"):
        allreduce([torch.ones(2, device="sim:3"), torch.ones(2, device=device)])


@pytest.mark.parametrize(
    ("algorithm", "options", "says"),
    [
        ("star", {}, "'star': choose"),
        ("ring", {"launches": "none"}, "'none'"),
        (schedules.allreduce_ring(3), {}, "expected 3 tensors"),
    ],
)
def test_options_that_do_not_exist(algorithm, options, says):
    with pytest.raises(ValueError, match=says):
        allreduce([torch.ones(2), torch.zeros(2)], algorithm, **options)


# -- the ledger ------------------------------------------------------------------------------------------------------


def run_on(gpus, n, algorithm, **options):
    data = [torch.full((n,), float(rank), device=device) for rank, device in enumerate(gpus)]
    devices.synchronize(*gpus)
    ledger = allreduce(data, algorithm, **options)
    assert all((tensor == sum(range(len(gpus)))).all() for tensor in data)
    return ledger


@each_algorithm
@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 8])
def test_ledger_lists_the_schedules_messages(switched, algorithm, world_size):
    n = 1003
    ledger = run_on(switched[:world_size], n, algorithm)
    schedule = schedules.ALLREDUCE[algorithm](world_size)
    sends = schedules.messages(schedule, n)
    want = [(step, send.src, send.dst, 4 * (last - first)) for step, send, first, last in sends]
    assert [tuple(message[:4]) for message in ledger.messages] == want
    assert ledger.steps == len(schedule.steps)
    assert sum(ledger.sent()) == sum(ledger.received()) == sum(nbytes for *_, nbytes in want)
    for message in ledger.messages:
        assert message.link == f"NVLink gpu{message.src} out + NVLink gpu{message.dst} in"
        assert 0 < message.start < message.end <= ledger.seconds * (1 + 1e-9)
    assert ledger.clock == "8xH200"


def test_messages_of_a_step_run_at_the_same_time_and_steps_follow(switched):
    ledger = run_on(switched, 8 * 10**6, "ring")
    steps = [[m for m in ledger.messages if m.step == step] for step in range(ledger.steps)]
    for sends, later in pairwise(steps):
        assert len({(m.start, m.end) for m in sends}) == 1
        assert sends[0].end <= later[0].start
    assert ledger.sent() == [2 * 7 * 4 * 10**6] * 8


def test_launching_each_message_costs_the_host(switched):
    once, each = run_on(switched, 64, "ring"), run_on(switched, 64, "ring", launches="each")
    assert each.seconds > once.seconds
    assert each.seconds >= (14 * 8 + 7 * 8) * 3.8e-6
    run_on(switched[:1], 64, "ring")
    before = simgpu.now()
    torch.ones(3, device="sim:0").add_(1)
    assert simgpu.now() > before, "launches cost again afterwards"


def test_work_before_and_after_is_ordered(switched):
    """A collective starts after what was queued on its devices, and what is queued afterwards waits for it."""
    data = [torch.ones(10**7, device=device) for device in switched[:2]]
    devices.synchronize(*switched)
    with simgpu.trace() as trace:
        data[1].mul_(2)
        ledger = allreduce(data)
        data[0].mul_(3)
    doubled, tripled = (span for span in trace.spans if (span.name, span.kind) == ("mul_", "operation"))
    copies = [span for span in trace.spans if span.kind == "copy"]
    assert doubled.end <= min(span.start for span in copies)
    assert tripled.start >= max(span.end for span in copies)
    assert ledger.seconds > 0
    assert (data[0] == 9).all()


def test_a_buffer_is_not_overwritten_while_it_is_sent(switched):
    data = [torch.ones(10**6, device=device) for device in switched]
    devices.synchronize(*switched)
    with simgpu.trace() as trace:
        on_devices.run(schedules.broadcast(8), data)
        data[0].mul_(3)
    sent = max(span.end for span in trace.spans if span.place == "NVLink gpu0 out")
    tripled = next(span for span in trace.spans if (span.name, span.kind) == ("mul_", "operation"))
    assert tripled.start >= sent


def test_peak_memory_is_the_buffer_and_one_message(switched):
    n = 8 * 1024
    for algorithm, beside in (("ring", n // 8), ("halving-doubling", n // 2), ("tree", n)):
        data = [torch.zeros(n, device=device) for device in switched]
        for device in switched:
            torch.sim.reset_peak_memory_stats(device)
        allreduce(data, algorithm)
        peaks = [torch.sim.max_memory_allocated(device) for device in switched]
        assert max(peaks) == 4 * (n + beside), algorithm


def test_no_clock_no_times():
    ledger = on_devices.run(schedules.broadcast(4), [torch.zeros(3, dtype=torch.float64) for _ in range(4)])
    assert (ledger.sent(), ledger.received()) == ([48, 0, 24, 0], [0, 24, 24, 24])
    assert (ledger.link_bytes(), ledger.seconds, ledger.clock) == ({"memory": 72}, None, None)
    assert {(m.link, m.start, m.end) for m in ledger.messages} == {("memory", None, None)}
    simgpu.enable(3, clock=False)
    assert allreduce([torch.ones(3, device=f"sim:{rank}") for rank in range(3)]).seconds is None
    simgpu.disable()
