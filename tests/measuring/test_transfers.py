"""Copies: simulated ones against the model to the last digit, real ones by what must hold, and every refusal."""

import pytest
import torch

import simgpu
from d2lmini import host
from d2lmini.devices import cpu, threads
from d2lmini.measuring import transfers
from d2lmini.measuring.operations import Reporting
from d2lmini.measuring.transfers import Route
from simgpu.hardware import op_costs
from simgpu.hardware.links import LINKS
from simgpu.hardware.op_costs import HOST_COSTS

KIB, MIB = 2**10, 2**20
FEW = (4 * KIB, 16 * KIB, 256 * KIB, MIB)
WITHIN = Route(cpu(), cpu())


@pytest.fixture
def gpus():
    simgpu.enable(2, gpu="V100-SXM2-16GB", link="PCIe3-x16")
    return [torch.device("sim", i) for i in range(2)]


def test_routes_of_no_one_and_two_devices(gpus, monkeypatch):
    assert transfers.routes("cpu") == [WITHIN]
    assert list(map(str, transfers.routes(gpus[0]))) == [
        "cpu → sim:0, pageable",
        "cpu → sim:0, pinned",
        "sim:0 → cpu, pageable",
        "sim:0 → cpu, pinned",
        "sim:0 → sim:0",
    ]
    assert len(transfers.routes()) == 2 * 5 + 2
    assert list(map(str, transfers.routes(*gpus)))[-2:] == ["sim:0 → sim:1", "sim:0 → sim:1, staged"]
    monkeypatch.setenv("D2LMINI_DEVICES", "cpu")
    assert transfers.routes() == [WITHIN]


def modelled(route, nbytes):
    """Return the seconds by the model: the host's launch, then each link, with a launch more for a second step."""
    link = LINKS["PCIe3-x16"]
    if cpu() in (route.src, route.dst):
        return op_costs.LAUNCH_S + op_costs.copy_seconds(nbytes, link, route.pinned)
    changing_hands = 0 if route.staged else op_costs.STAGING_S  # a driver's chunk; our own two copies change no hands
    return (1 + route.staged) * op_costs.LAUNCH_S + 2 * op_costs.copy_seconds(nbytes, link) + changing_hands


def test_simulated_copies_take_what_the_model_says_and_the_fit_finds_its_constants(gpus):
    for route in transfers.routes(*gpus):
        copies = transfers.measure_route(route, sizes=FEW)
        assert copies.origin == "simulated on 2 × V100-SXM2-16GB, PCIe3-x16"
        assert copies.sizes == FEW
        if copies.route.src == copies.route.dst:  # within a GPU a copy is an operation: it reads and writes
            gpu = simgpu.machine().gpu
            rate = gpu.memory_bytes_per_s * op_costs.memory_share(gpu, "pointwise") / 2
            setup = HOST_COSTS["eager"].forward_s + op_costs.KERNEL_S
        else:
            setup = modelled(copies.route, 0)
            rate = MIB / (modelled(copies.route, MIB) - setup)
        wanted = [setup + nbytes / rate for nbytes in FEW]
        assert copies.seconds == pytest.approx(wanted, rel=1e-6), copies.route
        line = copies.fit()
        assert (line.alpha, line.beta) == pytest.approx((setup, rate), rel=1e-5), copies.route
        assert line.alpha_interval == pytest.approx((setup, setup), rel=1e-4)


@pytest.mark.parametrize(
    ("route", "wires"),
    [
        (("cpu", "sim:1"), {"PCIe gpu1 in": 1}),
        (("sim:1", "cpu"), {"PCIe gpu1 out": 1}),
        (("sim:0", "sim:1"), {"PCIe gpu0 out": 1, "PCIe gpu1 in": 1}),
        (("sim:0", "sim:0"), {}),
    ],
)
@pytest.mark.parametrize("staged", [False, True])
def test_every_byte_crosses_the_wires_of_its_route(gpus, route, wires, staged):
    given = Route(*map(torch.device, route), staged=staged and route == ("sim:0", "sim:1"))
    with simgpu.trace() as trace:
        transfers.measure_route(given, sizes=FEW)
    assert trace.link_bytes() == {wire: count * 6 * sum(FEW) for wire, count in wires.items()}
    waits = sum(span.kind == "wait" and span.name.startswith("copy") for span in trace.spans)
    assert waits == 6 * len(FEW) * (2 if given.staged else "cpu" in route)  # a step through the host is waited for


def test_copies_within_the_host_are_measured_on_one_thread():
    with threads(3):
        (route,) = transfers.routes("cpu")
        copies = transfers.measure_route(route, sizes=FEW[::-1], most=256 * KIB, pool=4 * MIB)
        assert torch.get_num_threads() == 3
    assert copies.sizes == FEW[:3]
    assert copies.origin.startswith("measured on ")
    assert "1 CPU thread," in copies.origin
    assert all(m.seconds[0] > 0 for m in copies.measurements)


def copies_of(nbytes, pool):
    """Measure copies within the host; return the `Copies` and the (target, source) of every copy."""
    calls = []
    with Reporting(lambda func, args, *_: calls.append(args[:2]) if "copy_" in str(func) else None):
        copies = transfers.measure_route(WITHIN, sizes=[nbytes], pool=pool)
    return copies, calls


def test_real_copies_take_the_next_bytes_of_both_pools_in_turn():
    _, calls = copies_of(4 * KIB, pool=14 * KIB)  # a piece that would not fit any more is not taken
    for tensors in zip(*calls, strict=True):
        places = [tensor.data_ptr() - tensors[0].data_ptr() for tensor in tensors]
        assert places == [4 * KIB * (i % 3) for i in range(len(places))]
    assert all(of.equal(to) and of.data_ptr() != to.data_ptr() for to, of in calls)


@pytest.mark.parametrize(
    ("nbytes", "repeat", "batch"), [(KIB, 11, 64), (MIB, 11, 16), (12 * MIB, 11, 1), (16 * MIB, 6, 1)]
)
def test_large_copies_are_repeated_less_and_small_ones_timed_together(nbytes, repeat, batch):
    copies, calls = copies_of(nbytes, pool=0)
    assert len(copies.measurements[0].seconds) == repeat
    assert len(calls) == batch * (repeat + 2)


# -- refusals: one line each, before any memory is taken ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        *(([KIB, bad], f"multiple .* got {bad!r}") for bad in (0, -4, 6, 4.0, "4")),
        ([KIB], "at most"),
        ([], "at most"),
    ],
)
def test_sizes_are_whole_numbers_and_some_are_left(sizes, says):
    with pytest.raises(ValueError, match=says):
        transfers.measure_route(WITHIN, sizes=sizes, most=100)


@pytest.mark.parametrize(
    ("src", "dst", "option"),
    [
        ("cpu", "cpu", "pinned"),
        ("cuda:0", "cuda:1", "pinned"),
        ("cuda:0", "cpu", "staged"),
        ("cuda:0", "cuda:0", "staged"),
    ],
)
def test_routes_that_make_no_sense(src, dst, option):
    with pytest.raises(ValueError, match=f"{option}.* not {src} → {dst}"):
        Route(torch.device(src), torch.device(dst), **{option: True})


def test_more_than_the_host_has_free(gpus, monkeypatch):
    """Both ends count within the host, and pinning needs the memory twice."""
    monkeypatch.setattr(host, "main_memory", lambda: host.MainMemory(9 * MIB, 5 * MIB, False))
    for route in (WITHIN, Route(cpu(), gpus[0], pinned=True)):
        with pytest.raises(MemoryError, match=r"6 MiB .* 5 MiB"):
            transfers.measure_route(route, sizes=[3 * MIB], pool=0)
    transfers.measure_route(Route(cpu(), gpus[0]), sizes=[3 * MIB])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_real_cuda():
    for route in transfers.routes("cuda:0"):
        copies = transfers.measure_route(route, sizes=FEW)
        assert copies.origin.startswith("measured on ")
        assert copies.fit().beta > 0
