"""Memory is counted by storage, freed at once, and runs out where it would."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn import functional as F

import simgpu
from simgpu.accounting.allocator import Allocator, human

MIB = 2**20
pytestmark = pytest.mark.usefixtures("gpus")


def used(device=1):
    return torch.sim.memory_allocated(device)


@pytest.mark.parametrize(("numbers", "counted"), [(0, 0), (1, 512), (128, 512), (129, 1024), (256, 1024)])
def test_a_storage_takes_a_multiple_of_512_bytes_and_is_freed_at_once(numbers, counted):
    assert used() == 0
    x = torch.ones(numbers, device="sim:1")
    assert used() == counted
    assert (used(0), used(2)) == (0, 0)
    del x
    assert used() == 0


def test_views_detached_tensors_and_storages_are_not_counted_again():
    x = torch.ones(1000, device="sim:1")
    views = [x[10:], x.view(10, 100).t(), x.detach(), x.data, x.reshape(-1), *x.split(300), x.untyped_storage()]
    assert used() == 4096
    del x
    assert used() == 4096  # a view keeps it all
    del views
    assert used() == 0


def test_growing_and_replacing_a_storage():
    x = torch.ones(128, device="sim:1")
    x.resize_(1024)
    assert used() == 4096
    x.untyped_storage().resize_(0)
    assert used() == 0
    x.untyped_storage().resize_(4096)
    assert used() == 4096
    x.set_(torch.ones(128, device="sim:1").untyped_storage())
    assert (used(), x.shape) == (512, (128,))
    x.data = torch.ones(300, device="sim:1")
    assert used() == 1536
    torch.cumsum(torch.ones(2048, device="sim:1"), 0, out=(out := x.new_empty(0)))
    assert used() == 1536 + 8192
    del out


def test_what_autograd_saved_counts_until_backward():
    x = torch.ones(128, 128, device="sim:1", requires_grad=True)
    one = used()
    y = x.exp().exp().sum()
    assert used() == 3 * one + 512  # exp saves its result
    y.backward()
    assert used() == 2 * one + 512  # x and its gradient
    del y
    assert torch.sim.max_memory_allocated(1) > used()
    torch.sim.reset_peak_memory_stats(1)
    assert torch.sim.max_memory_allocated(1) == used() == torch.sim.memory_reserved(1)


def test_out_of_memory_is_cudas_error_and_leaves_the_counts_right():
    held = [torch.empty(10 * MIB, dtype=torch.uint8, device="sim:1")]
    calls = (
        lambda: torch.empty(6 * MIB + 1, dtype=torch.uint8, device="sim:1"),  # a factory
        lambda: torch.zeros(10**14, device="sim:1"),  # more than any host has: refused before it is taken
        lambda: torch.ones(7 * MIB, dtype=torch.uint8).to("sim:1"),  # a copy
        lambda: held[0].clone(),
        lambda: held[0] + held[0],
        lambda: torch.zeros_like(held[0]),
        lambda: held[0].new_empty(10**14),
        lambda: held[0].repeat(2),
        lambda: torch.cat(held * 2),
        lambda: torch.empty(0, device="sim:1").resize_(10**14),
        lambda: held[0].untyped_storage().resize_(10**14),
    )
    for call in calls:
        with pytest.raises(torch.OutOfMemoryError, match="sim out of memory"):
            call()
        assert used() == 10 * MIB
    held.append(torch.empty(6 * MIB, dtype=torch.uint8, device="sim:1"))  # it fits
    assert torch.sim.mem_get_info(1) == (0, 16 * MIB)
    assert torch.sim.memory_stats(1)["num_ooms"] == len(calls)
    held.clear()
    assert used() == 0


def test_the_message():
    with pytest.raises(torch.OutOfMemoryError, match=r"32\.00 MiB.*GPU 3 .*of 16\.00 MiB.*16\.00 MiB is free"):
        torch.empty(32 * MIB, dtype=torch.uint8, device="sim:3")
    sizes = {0: "0 bytes", 1024: "1024 bytes", 1536: "1.50 KiB", 3 * 2**29: "1.50 GiB", MIB: "1024.00 KiB"}
    assert {n: human(n) for n in sizes} == sizes


LARGE = 500_000  # its square is a terabyte of float32
OPERATIONS = [
    lambda c, r, e: c + r,
    lambda c, r, e: c < r,
    lambda c, r, e: torch.where(c > 0, r, c),
    lambda c, r, e: c @ r,
    lambda c, r, e: torch.add(c, r, out=c.new_empty(0)),
    lambda c, r, e: torch.bmm(c[None], r[None]),
    lambda c, r, e: torch.addmm(c[:1], c, r),
    lambda c, r, e: torch.ones_like(c)[:, :0] @ torch.ones_like(r)[:0],
    lambda c, r, e: torch.einsum("i,j->ij", c[:, 0], r[0]),
    lambda c, r, e: F.linear(c, c),
    lambda c, r, e: torch.outer(r[0], r[0]),
    lambda c, r, e: torch.cdist(c, c),
    lambda c, r, e: torch.cat([e] * 2),
    lambda c, r, e: torch.stack([e] * 2),
    lambda c, r, e: r.repeat(LARGE, 1),
    lambda c, r, e: c.tile(1, LARGE),
    lambda c, r, e: c.repeat_interleave(LARGE),
    lambda c, r, e: e.clone(),
    lambda c, r, e: e.contiguous(),
    lambda c, r, e: r.expand(LARGE, LARGE).reshape(-1),
    lambda c, r, e: e.double(),
    lambda c, r, e: torch.relu(e),
    lambda c, r, e: c.expand(LARGE, LARGE).softmax(1),
    lambda c, r, e: F.one_hot(c[:, 0].long(), LARGE),
    lambda c, r, e: r.T.expand(LARGE, LARGE)[c[:, 0].long()],
    lambda c, r, e: F.pad(c, (10**6, 10**6)),
    lambda c, r, e: F.interpolate(c[None, None, :1000], scale_factor=(1000, 10**6)),
    lambda c, r, e: e.to("sim:1"),
    lambda c, r, e: F.conv2d(c[None, None, :9], c[:1, :, None, None], padding=LARGE),
    lambda c, r, e: F.dropout(e),
    lambda c, r, e: torch.ones(LARGE, LARGE, device=c.device),
    lambda c, r, e: torch.arange(10**12, device=c.device),
    lambda c, r, e: torch.linspace(0, 1, 10**12, device=c.device),
    lambda c, r, e: torch.eye(LARGE, device=c.device),
    lambda c, r, e: torch.randperm(10**12, device=c.device),
    lambda c, r, e: torch.randn_like(e),
    lambda c, r, e: torch.tril_indices(LARGE, LARGE, device=c.device),
    lambda c, r, e: r.new_zeros(LARGE, LARGE),
    lambda c, r, e: (c.requires_grad_() * r).sum(),
    lambda c, r, e: e.cumsum(0),
    lambda c, r, e: e.long().cumprod(0),
    lambda c, r, e: e.expand(10**12).cumprod(0, dtype=torch.float64),
    lambda c, r, e: torch.diag(r[0]),
    lambda c, r, e: torch.diag_embed(r, 1),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=range(len(OPERATIONS)))
def test_what_cannot_fit_is_refused_before_the_hosts_memory_is_taken(operation):
    column, row = torch.ones(LARGE, 1, device="sim:0"), torch.ones(1, LARGE, device="sim:0")
    everywhere = torch.ones(1, device="sim:0").expand(10**12)
    with pytest.raises(torch.OutOfMemoryError, match="sim out of memory"):
        operation(column, row, everywhere)


def test_what_fits_is_not_refused():
    row = torch.ones(1, 1000, device="sim:1")
    assert (row + row.T).shape == (1000, 1000)
    assert torch.sim.mem_get_info(1) == (16 * MIB - 4096, 16 * MIB)
    full = torch.empty(torch.sim.mem_get_info(1)[0] // 2, dtype=torch.uint8, device="sim:1")
    same = full == full  # a boolean for each: exactly what is left
    assert torch.sim.mem_get_info(1)[0] == 0
    del same
    with pytest.raises(torch.OutOfMemoryError):
        full + 1.0


def test_threads_keep_the_count_right():
    def work(_):
        for size in range(1, 300):
            torch.ones(size, device="sim:1").add(1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    gc.collect()
    assert used() == 0
    assert torch.sim.memory_stats(1)["allocation.all.allocated"] == 4 * 2 * 299


def test_no_growth():
    x, w = torch.ones(8, 8, device="sim:1"), torch.ones(8, 8, device="sim:1", requires_grad=True)
    (x @ w).sum().backward()
    before, objects = used(), len(gc.get_objects())
    for _ in range(300):
        w.grad = None
        (x @ w).relu().sum().backward()
    assert used() == before
    assert len(gc.get_objects()) < objects + 200


@pytest.mark.parametrize("soon", range(8))
def test_a_collection_in_the_middle_of_counting_is_counted_too(soon):
    memory, held = Allocator(0, MIB), []
    gc.collect()
    gc.disable()
    for _ in range(3):
        circle = [torch.UntypedStorage(1000)]
        circle.append(circle)
        memory.add(circle[0])
    del circle
    usual = gc.get_threshold()
    gc.set_threshold(gc.get_count()[0] + 1 + soon)  # as many objects later
    gc.enable()
    try:
        for _ in range(8):
            held.append(torch.UntypedStorage(1000))
            memory.add(held[-1])
    finally:
        gc.set_threshold(*usual)
    gc.collect()
    assert (memory.allocated, memory.blocks()) == (8 * 1024, 8)


def test_counting_can_be_left_out_and_taken_up_again():
    simgpu.enable(4, memory=MIB, clock=False, counting=False)
    x = torch.ones(2 * MIB, dtype=torch.uint8, device="sim:0")
    assert used(0) == 0
    with pytest.raises(RuntimeError, match="expected at most 1024"):
        simgpu.enable(4, memory=MIB, clock=False)
    simgpu.enable(4, memory=4 * MIB, clock=False)
    assert used(0) == 2 * MIB
    del x
    assert used(0) == 0


def test_the_allocator_knows_the_stream_of_a_block_and_those_that_were_recorded():
    simgpu.enable(2)
    main, side = torch.sim.current_stream(1), torch.sim.Stream(1)
    with torch.sim.stream(side):
        x = torch.ones(4, device="sim:1")
    known = simgpu.memory_streams(x[1:].detach())  # a view has its owner's memory
    assert (known.allocated, known.recorded) == (side, [])
    x.record_stream(side)  # its own stream tells nothing new
    x[2:].record_stream(main)
    x.record_stream(main)
    del x
    assert (known.allocated, known.recorded) == (side, [main])
    with pytest.raises(TypeError, match="simulated GPU, got cpu"):
        simgpu.memory_streams(torch.ones(1))


@pytest.mark.parametrize("left_out", ["clock", "counting"])
def test_without_clock_or_counting_no_stream_is_known(left_out):
    simgpu.enable(1, **{left_out: False})
    x = torch.ones(4, device="sim")
    x.record_stream(torch.sim.Stream())
    assert simgpu.memory_streams(x).allocated is None
