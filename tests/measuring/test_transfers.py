"""Copies: simulated ones against the model to the last digit, real ones by what must hold, and every refusal."""

import os

import pytest
import torch

from d2lmini import sim
from d2lmini.devices import cpu
from d2lmini.hardware import costs, host
from d2lmini.hardware.catalog import LINKS
from d2lmini.measuring import transfers
from d2lmini.measuring.transfers import Route

KIB, MIB = 2**10, 2**20
FEW = (4 * KIB, 16 * KIB, 256 * KIB, MIB)
WITHIN = Route(cpu(), cpu())


@pytest.fixture
def gpus():
    sim.enable(2, gpu="V100-SXM2-16GB", link="PCIe3-x16")
    return [torch.device("sim", i) for i in range(2)]


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(transfers, "REPEAT", 6)
    return 4 * MIB


def test_routes_of_no_one_and_two_devices(gpus, monkeypatch):
    assert transfers.routes("cpu") == [WITHIN]
    assert list(map(str, transfers.routes(gpus[0]))) == [
        "cpu → sim:0, pageable", "cpu → sim:0, pinned", "sim:0 → cpu, pageable", "sim:0 → cpu, pinned",
        "sim:0 → sim:0",
    ]  # fmt: skip
    assert len(transfers.routes()) == 2 * 5 + 2
    assert list(map(str, transfers.routes(*gpus)))[-2:] == ["sim:0 → sim:1", "sim:0 → sim:1, staged"]
    monkeypatch.setenv("D2LMINI_DEVICES", "cpu")
    assert transfers.routes() == [WITHIN]


def modelled(route, nbytes):
    """Return the seconds by the model: the host's launch, then each link, with a launch more for a second step."""
    link = LINKS["PCIe3-x16"]
    if cpu() in (route.src, route.dst):
        return costs.LAUNCH_S + costs.copy_seconds(nbytes, link, route.pinned)
    return (1 + route.staged) * costs.LAUNCH_S + 2 * costs.copy_seconds(nbytes, link)


def test_simulated_copies_take_what_the_model_says_and_the_fit_finds_its_constants(gpus):
    for copies in transfers.measure_copies(*gpus, sizes=FEW):
        assert copies.origin == "simulated on 2 × V100-SXM2-16GB, PCIe3-x16"
        assert copies.sizes == FEW
        if copies.route.src == copies.route.dst:  # within a GPU a copy is an operation: it reads and writes
            rate = sim.machine().gpu.memory_bytes_per_s * costs.MEMORY["pointwise"] / 2
            setup = costs.LAUNCH_S + costs.KERNEL_S
        else:
            setup = modelled(copies.route, 0)
            rate = MIB / (modelled(copies.route, MIB) - setup)
        wanted = [setup + nbytes / rate for nbytes in FEW]
        assert copies.seconds == pytest.approx(wanted, rel=1e-6), copies.route
        line = copies.fit()
        assert (line.alpha, line.beta) == pytest.approx((setup, rate), rel=1e-5), copies.route
        assert line.alpha_interval == pytest.approx((setup, setup), rel=1e-4)


@pytest.mark.parametrize(("route", "wires"), [
    (("cpu", "sim:1"), {"PCIe gpu1 in": 1}), (("sim:1", "cpu"), {"PCIe gpu1 out": 1}),
    (("sim:0", "sim:1"), {"PCIe gpu0 out": 1, "PCIe gpu1 in": 1}), (("sim:0", "sim:0"), {}),
])  # fmt: skip
@pytest.mark.parametrize("staged", [False, True])
def test_every_byte_crosses_the_wires_of_its_route(gpus, route, wires, staged):
    given = Route(*map(torch.device, route), staged=staged and route == ("sim:0", "sim:1"))
    with sim.trace() as trace:
        transfers.measure_route(given, sizes=FEW)
    assert trace.link_bytes() == {wire: count * 6 * sum(FEW) for wire, count in wires.items()}
    waits = sum(span.kind == "wait" and span.name.startswith("copy") for span in trace.spans)
    assert waits == 6 * len(FEW) * (2 if given.staged else "cpu" in route)  # a step through the host is waited for


def test_the_clock_is_read_when_all_devices_of_the_route_are_done(gpus, monkeypatch):
    seen = []

    def measure(function, repeat, warmup, devices):
        seen.append(list(devices))
        return real(function, repeat, warmup, devices)

    real = transfers.measure
    monkeypatch.setattr(transfers, "measure", measure)
    transfers.measure_route(Route(*gpus), sizes=[KIB])
    assert seen == [gpus]


def test_peer_to_peer_takes_half_the_time_of_staging():
    sim.enable(machine="cluster-node-2012")
    ends = [torch.device("sim", i) for i in range(2)]
    direct, staged = (transfers.measure_route(Route(*ends, staged=s), sizes=FEW).fit() for s in (False, True))
    assert staged.alpha == pytest.approx(2 * direct.alpha, rel=1e-5)
    assert staged.beta == pytest.approx(direct.beta / 2, rel=1e-5)
    assert direct.beta == pytest.approx(0.8 * 8e9, rel=1e-5)


def test_copies_within_the_host_are_measured_on_one_thread(small_pool, monkeypatch):
    used, real = [], transfers.measure
    monkeypatch.setattr(transfers, "measure", lambda *a: used.append(torch.get_num_threads()) or real(*a))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        (copies,) = transfers.measure_copies("cpu", sizes=FEW[::-1], most=256 * KIB, pool=small_pool)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert copies.sizes == FEW[:3]
    assert copies.origin.startswith("measured on ")
    assert "1 CPU thread," in copies.origin
    assert (set(used), after) == ({1}, 3)
    assert all(m.seconds[0] > 0 and len(m.seconds) == 6 for m in copies.measurements)


def test_real_copies_copy(small_pool, monkeypatch):
    pairs = []

    class Pool(transfers._Pool):
        def take(self, count):
            piece = super().take(count)
            pairs.append(piece.random_())
            return piece

    monkeypatch.setattr(transfers, "_Pool", Pool)
    transfers.measure_route(WITHIN, sizes=[4 * KIB], pool=32 * MIB)  # so large that no piece is taken twice
    for to, of in zip(pairs[::2], pairs[1::2], strict=True):
        assert torch.equal(to, of)
        assert to.data_ptr() != of.data_ptr()
    assert len(pairs) == 2 * transfers.BATCH * (6 + 2)


def test_a_pool_comes_back_to_its_first_bytes_only_when_all_others_were_used():
    pool = transfers._Pool(10, cpu(), torch.float32, False)
    starts = [(pool.take(count).data_ptr() - pool.numbers.data_ptr()) // 4 for count in (4, 3, 3, 4, 7, 10, 1)]
    assert starts == [0, 4, 7, 0, 0, 0, 0]


@pytest.mark.parametrize(("nbytes", "repeat", "batch"), [
    (KIB, 11, 64), (256 * KIB, 11, 64), (MIB, 11, 16), (12 * MIB, 11, 1), (16 * MIB, 6, 1), (256 * MIB, 6, 1),
])  # fmt: skip
def test_large_copies_are_repeated_less_and_small_ones_timed_together(nbytes, repeat, batch, monkeypatch):
    seen = {}

    class Nothing:
        def take(self, count):
            seen["taken"] = seen.get("taken", 0) + 1

    def measure(function, repeat, warmup, devices):
        seen.update(repeat=repeat, warmup=warmup)
        return transfers.Measurement((2.0,) * repeat)

    monkeypatch.setattr(transfers, "measure", measure)
    result = transfers._time(nbytes, nbytes // 4, Nothing(), Nothing(), None, [cpu(), cpu()])
    assert seen == {"repeat": repeat, "warmup": 2, "taken": 2 * batch * (repeat + 2)}
    assert result.seconds == (2.0 / batch,) * repeat


def test_the_tables_name_route_unit_and_origin(gpus):
    results = transfers.measure_copies(gpus[0], sizes=FEW)
    lines = transfers.table(results).splitlines()
    assert len(lines) == 1 + 5 + 1
    assert lines[1].split() == ["cpu", "→", "sim:0,", "pageable", "13.8", "µs", "6.30", "GB/s", "87", "kB", "0.0%"]
    assert lines[-1] == "simulated on 2 × V100-SXM2-16GB, PCIe3-x16"
    shown = str(results[1]).splitlines()
    assert (shown[0], shown[-1]) == ("cpu → sim:0, pinned", lines[-1])
    assert shown[-2].split() == ["1,048,576", "97", "µs", "97", "µs", "to", "97", "µs", "10.810"]


# -- refusals: one line each, before any memory is taken ---------------------------------------------------------------


def refused(error, message, *devices, **options):
    with pytest.raises(error, match=message) as caught:
        transfers.measure_copies(*devices, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [0, -4, 6, 4.0, "4"])
def test_sizes_are_whole_numbers(bad):
    refused(ValueError, f"positive number of bytes that holds whole numbers of torch.float32 .* got {bad!r}", "cpu",
            sizes=[KIB, bad])  # fmt: skip


def test_no_size_is_left():
    refused(ValueError, r"expected a size of at most 100 bytes, got \[1024\]", "cpu", sizes=[KIB], most=100)
    refused(ValueError, r"expected a size of at most 8 bytes, got \[\]", "cpu", sizes=[], most=8)


@pytest.mark.parametrize("device", ["sim:2", "cuda:99", "mps:7", "xpu:9", "meta"])
def test_devices_that_do_not_exist(gpus, device):
    refused(ValueError, f"there is no {device} on this machine", device, sizes=[KIB])


@pytest.mark.parametrize(("device", "dtype", "message"), [
    ("sim:0", torch.uint4, "cpu holds no torch.uint4: "), ("cpu", torch.uint4, "cpu holds no torch.uint4: "),
    ("cpu", "float32", "expected a torch.dtype such as torch.float32, got 'float32'"),
])  # fmt: skip
def test_types_that_a_device_does_not_take(gpus, device, dtype, message):
    refused(ValueError, message, device, sizes=[KIB], dtype=dtype)


@pytest.mark.parametrize(("ends", "options", "message"), [
    (("cpu", "cpu"), {"pinned": True}, "between the host and a GPU, not cpu → cpu"),
    (("cuda:0", "cuda:1"), {"pinned": True}, "between the host and a GPU, not cuda:0 → cuda:1"),
    (("cuda:0", "cpu"), {"staged": True}, "only a copy between two GPUs can be staged, not cuda:0 → cpu"),
    (("cuda:0", "cuda:0"), {"staged": True}, "not cuda:0 → cuda:0"),
])  # fmt: skip
def test_routes_that_make_no_sense(ends, options, message):
    with pytest.raises(ValueError, match=message):
        Route(*map(torch.device, ends), **options)


def test_other_types_work(gpus):
    for dtype in (torch.uint8, torch.float16, torch.float64, torch.bool, torch.complex64):
        line = transfers.measure_route(Route(cpu(), gpus[0], True), sizes=FEW, dtype=dtype).fit()
        assert line.beta == pytest.approx(0.8 * LINKS["PCIe3-x16"].bytes_per_s_per_direction, rel=1e-5)


@pytest.fixture
def no_allocation(monkeypatch):
    def allocated(*args):
        raise AssertionError("memory was taken")

    monkeypatch.setattr(transfers, "_Pool", allocated)
    monkeypatch.setattr(transfers, "_host_tensor", allocated)


def test_more_than_the_device_has_free(no_allocation):
    sim.enable(2, memory=2 * MIB)
    message = "copying cpu → sim:0, pageable needs 4 MiB on sim:0, where 2 MiB are free: take a smaller size"
    refused(MemoryError, message, "sim:0", sizes=[4 * MIB])
    taken = torch.empty(MIB, dtype=torch.uint8, device="sim:1")
    with pytest.raises(MemoryError, match="copying sim:1 → sim:1 needs 2 MiB on sim:1, where 1 MiB"):
        transfers.measure_route(Route(taken.device, taken.device), sizes=[MIB])


@pytest.mark.parametrize(("limited", "who"), [(True, "this process's cgroup allows"), (False, "the machine has")])
def test_more_than_the_host_has_free(no_allocation, monkeypatch, limited, who):
    monkeypatch.setattr(host, "main_memory", lambda: host.MainMemory(900 * MIB, 500 * MIB, limited))
    refused(MemoryError, f"copying cpu → cpu needs 512 MiB of main memory, 500 MiB are free of the 900 MiB that {who}",
            "cpu", sizes=[KIB])  # fmt: skip


@pytest.mark.parametrize(("route", "mib"), [
    (WITHIN, 512), (Route(cpu(), torch.device("cuda")), 256), (Route(cpu(), torch.device("cuda"), pinned=True), 512),
])  # fmt: skip
def test_pinning_needs_the_memory_twice(route, mib, monkeypatch):
    asked = []
    monkeypatch.setattr(host, "require_memory", lambda nbytes, what: asked.append(nbytes / MIB))
    monkeypatch.setattr(transfers, "memory_info", lambda device: (None, None))
    monkeypatch.setattr(transfers, "synchronize", lambda device: None)
    transfers._check_memory(route, 256 * MIB, MIB)
    assert asked == [mib]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system pins no process to a core")
def test_one_core_is_enough(small_pool):
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        (copies,) = transfers.measure_copies("cpu", sizes=FEW, pool=small_pool)
    finally:
        os.sched_setaffinity(0, cores)
    assert len(copies.measurements) == len(FEW)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_real_cuda():
    for copies in transfers.measure_copies("cuda:0", sizes=FEW):
        assert copies.origin.startswith("measured on ")
        assert copies.fit().beta > 0
