import random
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import simgpu
from simgpu.accounting.clock import Clock
from simgpu.accounting.op_work import measure, signature
from simgpu.hardware.gemm import Gemm
from simgpu.hardware.links import LINKS
from simgpu.hardware.machines import MACHINES, build
from simgpu.hardware.op_costs import HOST_COSTS, LAUNCH_S, LINK_SHARE, STAGING_BYTES, copy_seconds, operation_seconds

aten = torch.ops.aten
PS = 10**12
LAUNCH = round(LAUNCH_S * PS)
CALL_S = HOST_COSTS["eager"].forward_s
CALL = round(CALL_S * PS)
RATE = 15.753846153846155e9 * LINK_SHARE  # bytes a second over PCIe 3
ALPHA = copy_seconds(0, LINKS["PCIe3-x16"])


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def do(clock, device=0, size=4096, func=aten.mm.default):
    x = meta(size, size)
    clock.operation(device, func, (x, x), {}, x)


def seconds(clock, size=4096):
    """One product's seconds, rounded as the clock does."""
    product = Gemm(1, size, size, size, 12 * size**2)
    cost = operation_seconds(2 * size**3, 12 * size**2, clock.machine.gpu, "gemm", "float32", (product,))
    return round(cost * PS) / PS


@pytest.fixture
def clock():
    return Clock(build(2, "V100-SXM2-16GB"))


class Reports(TorchDispatchMode):
    """Collects what runs, as the devices would report it."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


@pytest.mark.parametrize(
    ("sizes", "waited", "last"),
    [
        ({0: [1] * 1000}, None, 1),  # launches are all there is to wait for
        ({0: [4096]}, 0, 4096),
        ({0: [4096], 1: [4096]}, None, 4096),
        ({0: [4096], 1: [1]}, 1, 1),
    ],
)
def test_devices_run_beside_the_host_and_only_those_named_are_waited_for(clock, sizes, waited, last):
    calls = [do(clock, device, size) for device, queued in sizes.items() for size in queued]
    assert clock.now_ps() == len(calls) * CALL
    for _ in range(2):
        clock.synchronize(waited)
        assert clock.now_ps() == len(calls) * CALL + round(seconds(clock, last) * PS)


def test_host_work_delays_what_is_queued_after_it(clock):
    clock.advance(0.25, "reading")
    do(clock)
    clock.synchronize()
    assert clock.now() == pytest.approx(0.25 + CALL_S + seconds(clock))
    with pytest.raises(ValueError, match="finite"):
        clock.advance(-1)


FREE = [
    lambda x: x.view(-1),
    lambda x: x.t(),
    lambda x: x[0],
    lambda x: x.unsqueeze(0),
    lambda x: x.expand(2, 4, 4),
    lambda x: x.detach(),
    lambda x: x.t_(),
    lambda x: x.squeeze_(),
    lambda x: torch.empty(3, device="meta"),
    lambda x: torch.empty_like(x),
    lambda x: x.split(2),
    lambda x: x.new_empty(2),
]
COSTLY = [
    lambda x: x + 1,
    lambda x: x.clone(),
    lambda x: x.zero_(),
    lambda x: x.t().contiguous(),
    lambda x: x.isnan(),
    lambda x: torch.zeros(3, device="meta"),
    lambda x: x.to(torch.float64),
    lambda x: torch.cat([x, x]),
]


@pytest.mark.parametrize(("change", "free"), [*((c, True) for c in FREE), *((c, False) for c in COSTLY)])
def test_views_and_metadata_are_free_and_nothing_else(clock, change, free):
    x = meta(4, 4)
    with Reports() as reports:
        change(x)
    assert reports.calls
    for call in reports.calls:
        clock.operation(0, *call)
    clock.synchronize()
    assert clock.now_ps() == 0 if free else clock.now_ps() >= CALL


def test_a_gradient_not_asked_for_costs_nothing():
    grad, x, w = meta(32, 32, 3, 3), meta(32, 64, 3, 3), meta(32, 64, 3, 3)  # one shape, so None alone tells
    works = {}
    for mask in ((True, True), (False, True), (True, False), (False, False)):
        args = (grad, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [*mask, False])
        out = tuple(t if wanted else None for t, wanted in zip((x, w), mask))
        call = (aten.convolution_backward.default, args, {}, (*out, None))
        works[signature(*call)] = measure(*call).flops
    once = 2 * 32 * 32 * 64 * 9 * 9  # the weight's gradient has 32 rows, half a tile, and takes twice that
    assert list(works.values()) == [2 * once, once, once, 0]


def test_arithmetic_is_the_counters_where_tiles_are_full():
    with torch.device("meta"):
        model = torch.nn.Sequential(
            torch.nn.Conv2d(64, 128, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(128 * 6 * 6, 64)
        )
        x = torch.empty(64, 64, 8, 8, requires_grad=True)
    counter = FlopCounterMode(display=False)
    with counter, Reports() as reports:
        model(x).sum().backward()
    works = [measure(*call) for call in reports.calls if signature(*call)]
    assert sum(work.flops for work in works) == counter.get_total_flops() > 0
    assert {work.kind for work in works if work.flops} == {"gemm", "conv"}


def test_a_convolution_is_the_product_of_its_patches_and_backward_two():
    x, weight, out = meta(8, 16, 10, 10), meta(32, 8, 3, 3), meta(8, 32, 8, 8)
    args = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2)
    forward = measure(aten.convolution.default, (x, weight, *args), {}, out)
    both = measure(aten.convolution_backward.default, (out, x, weight, *args, [True, True, False]), {}, (x, weight))
    assert [tuple(p)[:4] for p in forward.gemms] == [(2, 8 * 8 * 8, 16, 8 * 9)]
    assert len(both.gemms) == 2
    assert both.flops == pytest.approx(2 * forward.flops, rel=0.02)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_convolution_of_each_channel_alone_moves_its_bytes(mirrored):
    x, weight, out = meta(8, 16, 10, 10), meta(16, 1, 3, 3), meta(8, 16, 10, 10)
    args = (None, [1, 1], [1, 1], [1, 1], mirrored, [0, 0], 16)
    work = measure(aten.convolution.default, (x, weight, *args), {}, out)
    assert work.gemms == ()
    assert work.nbytes == 4 * (2 * x.numel() + weight.numel())
    two = (x, meta(16, 2, 3, 3), *args[:-1], 8)
    assert measure(aten.convolution.default, two, {}, out).gemms
    back = measure(aten.convolution_backward.default, (out, x, weight, *args, [True, True, False]), {}, (x, weight))
    assert work.nbytes < back.nbytes < 3 * work.nbytes


def test_pictures_with_channels_last_need_no_reordering_for_the_tensor_cores():
    weight = meta(32, 16, 3, 3, dtype=torch.float16)

    def reordered(x):
        out = meta(8, 32, 8, 8, dtype=x.dtype)
        call = (aten.convolution.default, (x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), {}, out)
        (product,) = measure(*call).gemms
        return product.reordered, signature(*call)

    x = meta(8, 16, 10, 10, dtype=torch.float16)
    last = x.to(memory_format=torch.channels_last)
    assert reordered(x)[0] == 2 * 2 * (x.numel() + 8 * 32 * 64)
    assert reordered(last)[0] == 0
    assert reordered(x)[1] != reordered(last)[1]
    assert reordered(x.float())[0] == 0


def test_products_of_8_bit_numbers_are_products():
    for name, dtype in (("_scaled_mm", torch.float8_e4m3fn), ("_int_mm", torch.int8)):
        args = (meta(64, 32, dtype=dtype), meta(32, 16, dtype=dtype))
        found = measure(getattr(aten, name).default, args, {}, meta(64, 16))
        assert (found.kind, found.flops, found.dtype) == ("gemm", 2 * 64 * 32 * 16, str(dtype)[6:])


def test_switches_of_tf32_decide_what_a_product_is_computed_in():
    call, works = (aten.mm.default, (meta(64, 64), meta(64, 64)), {}, meta(64, 64)), []
    for precision in ("highest", "high", torch.get_float32_matmul_precision()):  # the last is as it was before
        torch.set_float32_matmul_precision(precision)
        works.append((measure(*call).dtype, signature(*call)))
    exact, rounded, _ = works
    assert (exact[0], rounded[0]) == ("float32", "tf32")
    assert exact[1] != rounded[1]


def test_attention_on_the_cpus_kernel_has_arithmetic():
    q, out = meta(1, 2, 64, 64), meta(1, 2, 64, 64)
    call = (aten._scaled_dot_product_flash_attention_for_cpu.default, (q, q, q), {}, (out, meta(1, 2, 64)))
    assert measure(*call).flops == 2 * 2 * 2 * 64**3
    causal = (call[0], (q, q, q, 0.0, True), *call[2:])
    assert measure(*causal).flops == measure(*call).flops // 2
    assert signature(*causal) != signature(*call)


@pytest.mark.parametrize(
    ("func", "args", "out", "nbytes"),
    [
        (aten.add.Tensor, (meta(10), meta(10)), meta(10), 120),
        (aten.add_.Tensor, (meta(10), meta(10)), meta(10), 120),
        (aten.fill_.Scalar, (meta(10), 1), meta(10), 40),
        (aten.zeros_like.default, (meta(10),), meta(10), 40),
        (aten.new_zeros.default, (meta(10), [20]), meta(20), 80),
        (aten.copy_.default, (meta(10), meta(10, dtype=torch.float64)), meta(10), 120),
        (aten._foreach_copy_.default, ([meta(10)] * 2, [meta(10, dtype=torch.float64)] * 2), [meta(10)] * 2, 240),
        (aten.cat.default, ([meta(10), meta(10)],), meta(20), 160),
        (aten.sum.default, (meta(10, dtype=torch.float64),), meta(dtype=torch.float64), 88),
        (aten.embedding.default, (meta(10_000, 4), meta(3, dtype=torch.int64)), meta(3, 4), 2 * 48 + 24),
        (
            aten.native_batch_norm.default,
            (meta(8, 2, 4), None, None, None, None, True, 0.1, 1e-5),
            (meta(8, 2, 4), meta(2), meta(2)),
            3 * 256 + 16,
        ),
        (
            aten.native_batch_norm.default,
            (meta(8, 2, 4), None, None, meta(2), meta(2), False, 0.1, 1e-5),
            (meta(8, 2, 4), meta(0), meta(0)),
            2 * 256 + 16,
        ),
        (aten.batch_norm_stats.default, (meta(8, 2, 4), 1e-5), (meta(2), meta(2)), 256 + 16),
        (
            aten.native_group_norm.default,
            (meta(8, 2, 4), None, None, 8, 2, 4, 1, 1e-5),
            (meta(8, 2, 4), meta(8, 1), meta(8, 1)),
            3 * 256 + 64,
        ),
        # A row's norm: one kernel forward; backward one for the rows, 3 tensors, one for the weights, which reads 2.
        (
            aten.native_layer_norm.default,
            (meta(8, 16), [16], meta(16), meta(16), 1e-5),
            (meta(8, 16), meta(8, 1), meta(8, 1)),
            2 * 512 + 2 * 64 + 2 * 32,
        ),
        (
            aten.native_layer_norm_backward.default,
            (meta(8, 16), meta(8, 16), [16], meta(8, 1), meta(8, 1), meta(16), meta(16), [True, True, True]),
            (meta(8, 16), meta(16), meta(16)),
            5 * 512 + 4 * 64 + 2 * 32,
        ),
        (
            aten.native_layer_norm_backward.default,
            (meta(8, 16), meta(8, 16), [16], meta(8, 1), meta(8, 1), None, None, [True, False, False]),
            (meta(8, 16), None, None),
            3 * 512 + 2 * 32,
        ),
        (
            aten._fused_rms_norm_backward.default,
            (meta(8, 16), meta(8, 16), [16], meta(8, 1), meta(16), [True, True]),
            (meta(8, 16), meta(16)),
            5 * 512 + 2 * 64 + 32,
        ),
    ],
)
def test_traffic(func, args, out, nbytes):
    assert measure(func, args, {}, out).nbytes == nbytes


def test_an_operation_that_returns_nothing_writes_what_it_changes():
    simgpu.enable(1)
    mine, others = ([torch.ones(n, device="sim") for n in (10, 20)] for _ in range(2))
    with simgpu.trace() as trace:
        torch._foreach_add_(mine, others)
    assert [span.nbytes for span in trace.spans if span.kind == "operation"] == [3 * 120]


def test_fsdp2_moves_a_shard_into_the_buffer_and_the_whole_out_of_it():
    """A copy reads and writes what it moves."""
    ranks, size = 4, 64 * 64 * 4

    def run(rank):
        model = fully_shard(torch.nn.Linear(64, 64, bias=False).to("sim"))
        model(torch.ones(1, 64, device="sim")).sum().backward()

    simgpu.enable(ranks, shapes_only=True)
    with simgpu.trace() as trace:
        simgpu.spawn(run)
    moved = {span.name: span.nbytes for span in trace.spans if span.place == "gpu0"}
    assert moved["all_gather_copy_in"] == 2 * size // ranks
    concatenated = [nbytes for name, nbytes in moved.items() if name.startswith("chunk_cat")]  # …_mixed_dtype in 2.15
    assert [moved["split_with_sizes_copy"], *concatenated] == [2 * size, 2 * size]


def test_what_out_names_is_written_and_not_read():
    given, target = (meta(10), meta(10)), meta(10)
    assert measure(aten.add.out, given, {"alpha": 2, "out": target}, target).nbytes == 120
    values, indices = meta(2, 5), meta(2, 5, dtype=torch.int64)
    into = {"values": values, "indices": indices}
    assert measure(aten.sort.values, (meta(2, 5),), into, (values, indices)).nbytes == 2 * 40 + 80


def test_type_is_the_first_floating_operands():
    words, table = meta(3, dtype=torch.int64), meta(9, 4, dtype=torch.bfloat16)
    assert measure(aten.embedding.default, (table, words), {}, meta(3, 4, dtype=torch.bfloat16)).dtype == "bfloat16"
    assert measure(aten.add.Tensor, (words, words), {}, words).dtype == "int64"


@pytest.mark.parametrize(
    ("ways", "nbytes", "pinned", "blocking", "waited"),
    [
        ([(None, 0)], 10**9, True, [False], LAUNCH_S),
        ([(None, 0), (0, None)], 10**9, True, [False, True], LAUNCH_S + 2 * (ALPHA + 1e9 / RATE)),
        ([(None, 0)], 10**9, False, [False], LAUNCH_S + ALPHA + 2e9 / RATE),
        ([(None, 0)], 0, False, [True], 0),
    ],
)
def test_the_host_waits_for_copies_that_block_and_for_pageable_ones(clock, ways, nbytes, pinned, blocking, waited):
    for way, blocks in zip(ways, blocking):
        clock.copy(*way, nbytes, pinned, blocks)
    assert clock.now() == pytest.approx(waited)


def between(machine, nbytes):
    """Return the seconds of a copy between two devices on their streams, after the launch for which the host stays."""
    clock = Clock(machine)
    clock.copy(0, 1, nbytes, pinned=False, blocking=True)
    assert clock.now_ps() == LAUNCH
    ends = {clock.current_stream(device).end for device in (0, 1)}
    assert len(ends) == 1
    return ends.pop() / PS - LAUNCH_S


def test_peers_copy_in_one_hop_and_staging_in_chunks_keeps_both_ways_busy():
    """Two ways, one after the other, for one chunk; for a thousand little more than one way."""
    staged, peers = build(2, "GTX 1080"), build(2, "GTX 1080", peer=True)
    assert between(peers, 10**9) == pytest.approx(ALPHA + 1e9 / RATE)
    assert between(staged, STAGING_BYTES) >= 2 * between(peers, STAGING_BYTES)
    assert 1 < between(staged, 1000 * STAGING_BYTES) / between(peers, 1000 * STAGING_BYTES) < 1.2


def test_staging_on_eight_h100s_reaches_what_was_measured():
    """37.2 GB/s and, for 4 bytes, 11 to 20 µs: p2pBandwidthLatencyTest without peer access, NVIDIA/nccl#1264."""
    machine = build(8, "H100-SXM5-80GB", "PCIe5-x16")
    assert 10**9 / between(machine, 10**9) == pytest.approx(37.2e9, rel=0.03)
    assert 11e-6 < between(machine, 4) < 20e-6


def test_a_copy_between_devices_waits_for_both(clock):
    do(clock, 0)
    do(clock, 1, size=8192)
    clock.copy(0, 1, 4, False, False)
    assert clock.current_stream(0).end > round(seconds(clock, 8192) * PS)


def test_one_wire_serves_one_copy_and_the_other_direction_another(clock):
    streams = [clock.stream(0) for _ in range(3)]
    for stream, ends in zip(streams, ((None, 0), (None, 0), (0, None))):
        clock.set_stream(stream)
        clock.copy(*ends, 10**9, pinned=True, blocking=False)
    once = ALPHA + 1e9 / RATE
    assert [stream.end / PS for stream in streams] == pytest.approx([once, 2 * once, once], rel=1e-3)


def test_devices_behind_one_switch_share_the_way_to_the_host():
    clock = Clock(MACHINES["cluster-node-2012"])
    for device in (0, 1):
        clock.copy(None, device, 10**9, pinned=True, blocking=False)
    clock.synchronize()
    assert clock.now() == pytest.approx(2 * (ALPHA + 1e9 / (8e9 * LINK_SHARE)), rel=1e-3)


# -- streams and events, as torch.sim offers them ---------------------------------------------------------------------


@pytest.fixture
def running():
    simgpu.enable(2, gpu="V100-SXM2-16GB")
    return simgpu.clock()


def test_streams_wait_for_events_and_for_each_other(running):
    a, b, c = torch.sim.Stream(0), torch.sim.Stream(1), torch.sim.Stream(1)
    with torch.sim.stream(a):
        do(running)
        b.wait_event(a.record_event())
        do(running)
    c.wait_stream(a)
    product, ends = round(seconds(running) * PS), []
    for stream in (b, c, a):
        stream.synchronize()
        ends.append(running.now_ps())
    assert ends == [CALL + product, CALL + 2 * product, CALL + 2 * product]


def test_an_event_that_was_never_recorded_holds_nobody_up(running):
    event, stream = torch.sim.Event(), torch.sim.Stream(0)
    event.wait(stream)
    for waited in (event, stream):
        waited.synchronize()
    assert (running.now_ps(), event.query()) == (0, True)


def test_elapsed_time_is_the_devices_in_milliseconds(running):
    start, end = (torch.sim.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(10):
        do(running)
    end.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(10 * seconds(running) * 1e3 + CALL_S * 1e3, rel=1e-9)
    assert end.elapsed_time(start) == -start.elapsed_time(end)
    for other, says in ((torch.sim.Event(), "enable_timing=True"), (torch.sim.Event(True), "must be recorded")):
        with pytest.raises(ValueError, match=says):
            start.elapsed_time(other)


def test_polling_ends(running):
    do(running, size=256)
    event = torch.sim.current_stream(0).record_event()
    answers = [event.query() for _ in range(100)]
    assert answers == sorted(answers)
    assert (answers[0], answers[-1]) == (False, True)
    assert running.now_ps() == CALL + 100 * PS // 10**6
    assert torch.sim.current_stream(0).query()


def test_stream_synchronize_waits_for_that_stream_only(running):
    do(running, size=8192)
    side = torch.sim.Stream(0)
    with torch.sim.stream(side):
        do(running, size=64)
    side.synchronize()
    assert not torch.sim.default_stream(0).query()
    assert running.now() < seconds(running, 8192)


def in_threads(work, count):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("seed", range(2))
def test_threads_on_their_own_devices_give_one_result(seed):
    """That of the slowest, had each device been worked by the main thread of a clock of its own."""
    chance = random.Random(seed)
    pauses = [[chance.random() / 500 for _ in range(5)] for _ in range(4)]
    clock, *alone = clocks = [Clock(build(4, "GTX 1080")) for _ in range(5)]

    def work(clock, device):
        for pause in pauses[device]:
            time.sleep(pause)
            do(clock, device, size=64 * (device + 1))
            clock.copy(device, None, 1000 * (device + 1), False, True)

    for each in clocks:
        do(each)
    for device, own in enumerate(alone):
        work(own, device)
    with clock.trace() as trace:
        in_threads(partial(work, clock), 4)
    assert clock.now_ps() == max(own.now_ps() for own in alone)
    assert [span.place for span in trace.spans if span.kind == "operation"].count("gpu3") == 5


def test_a_thread_starts_at_its_makers_time_and_hands_its_own_back(clock):
    seen = []
    clock.advance(1)

    def work(i):
        seen.append(clock.now())
        clock.advance(i)

    in_threads(work, 3)
    assert (seen, clock.now()) == ([1, 1, 1], 3)


def test_current_stream_is_each_threads_own(clock):
    side, seen = clock.stream(0), []
    clock.set_stream(side)
    in_threads(lambda i: seen.append(clock.current_stream(0)), 1)
    assert seen == [clock.default_stream(0)]
    assert clock.current_stream(0) is side


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizers_step_over_lists_by_default_as_on_cuda(make):
    simgpu.enable(1)
    counts = []
    for layers in (1, 5):
        net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers))).to("sim:0")
        net(torch.ones(2, 4, device="sim:0")).sum().backward()
        with simgpu.trace() as trace:
            make(net.parameters(), lr=0.1).step()
        counts.append(sum("_foreach" in span.name for span in trace.spans if span.kind == "operation"))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("only", [False, True])
def test_a_conversion_by_autocast_costs_the_host_what_autograds_operations_do(only):
    simgpu.enable(1, gpu="A100-SXM4-80GB", shapes_only=only)
    x, w = torch.ones(4, 4, device="sim"), torch.ones(4, 4, device="sim")
    with torch.autocast("sim", torch.float16), simgpu.trace() as trace:
        x @ w
    launches = [(span.name, span.seconds) for span in trace.spans if span.kind == "launch"]
    cost = HOST_COSTS["eager"]
    assert launches == [("_to_copy", pytest.approx(cost.backward_s))] * 2 + [("mm", pytest.approx(cost.forward_s))]
    del x, w
    simgpu.disable()


def test_a_host_may_be_given_by_its_cost():
    clock = Clock(build(1, "V100-SXM2-16GB"), replace(HOST_COSTS["eager"], forward_s=3e-6))
    do(clock)
    assert clock.now() == pytest.approx(3e-6)
