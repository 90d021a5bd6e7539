"""Checks of the exercises on all-reduce: a ring on tensors, and a schedule with the fewest steps; both are scored."""

import contextlib
import math
import traceback

import torch

import simgpu
from d2lmini.checks.mechanism import Wrong, apart, attempt, check, listed, many, typed, usual_slip
from d2lmini.collectives import schedules
from d2lmini.collectives.cost_model import bound_seconds
from d2lmini.collectives.on_devices import run
from simgpu.hardware import machines, op_costs

RING = machines.build(8, "GTX 1080", "PCIe3-x16", peer=True)  # a slot for each: bytes, not latency, decide
SWITCH = machines.MACHINES["8xH200"]


@check
def ring_mean(function):
    """``function(tensors)``: each of the tensors, one on each GPU, becomes the mean of all; in place, around a ring."""
    return _simulated(RING, lambda: _try_rings(function))


def _try_rings(function):
    for world_size, n in ((2, 6), (3, 6), (4, 12), (3, 7), (5, 13), (4, 3), (1, 4), (3, 0), (8, 83)):
        _try_ring(function, world_size, n)
    return _score_ring(function, 8, 2**20)


def _try_ring(function, world_size, n):
    given = f"{many(n, 'float64 number')} on {many(world_size, 'GPU')}"
    data = [(torch.arange(n, dtype=torch.float64) + 1) * 10**rank for rank in range(world_size)]
    want = torch.stack(data).sum(0) / world_size
    tensors = [tensor.to(f"sim:{rank}") for rank, tensor in enumerate(data)]
    spans = _call(function, tensors, given)
    for rank, tensor in enumerate(tensors):
        got = tensor.cpu()
        if got.shape != want.shape:
            raise Wrong(f"{given}: rank {rank}'s tensor has the shape {list(got.shape)} now, it had {[n]}")
        right = torch.isclose(got, want, rtol=1e-12)
        if not right.all():
            i = int(right.int().argmin())
            slip = _slip(got, right, data)
            told, found = apart(want[i].item(), got[i].item())
            raise Wrong(f"{given}: rank {rank}'s element {i} should be {told}, it is {found}{slip}")
    _must_be_a_ring(spans, world_size, n, 8, given)


def _call(function, tensors, given):
    """Call the reader's function and return the copies that it made between places."""
    kept = [(tensor, tensor.data_ptr()) for tensor in tensors]
    torch.sim.synchronize()
    with simgpu.trace() as trace, simgpu.one_launch():
        attempt(lambda: [function(tensors)], given=given)
    if [(id(tensor), tensor.data_ptr()) for tensor in tensors] != [(id(tensor), place) for tensor, place in kept]:
        raise Wrong(
            f"{given}: these are other tensors now, or other memory; write into that of the given ones, with "
            "copy_ or +="
        )
    return [span for span in trace.spans if span.kind == "copy" and span.place.endswith("out")]


def _must_be_a_ring(spans, world_size, n, itemsize, given):
    """Raise Wrong for copies that leave the ring, and for more bytes than chunks make, rounded up in two half rings."""
    most = 2 * (world_size - 1) * 2 * -(-n // (2 * world_size)) * itemsize
    for rank in range(world_size):
        others = {(rank + 1) % world_size, (rank - 1) % world_size}
        mine = [span for span in spans if span.name.startswith(f"copy gpu{rank}→")]
        away = sorted({span.name.partition("→")[2] for span in mine} - {f"gpu{other}" for other in others})
        if away:
            raise Wrong(f"{given}: rank {rank} sends to {', '.join(away)}, which is not its neighbour")
        sent = sum(span.nbytes for span in mine)
        if sent > most:
            raise Wrong(f"{given}: rank {rank} sends {sent} bytes; a ring of chunks needs no more than {most}")


def _slip(got, right, data):
    """Return a hint if `got` is what one of the usual slips gives."""
    total = usual_slip(got, {"the sum; it still has to be divided": torch.stack(data).sum(0)})
    if total:
        return total
    if right.any() and not right[-1] and right[: len(right) - len(right) % len(data)].all():
        return " (only the last elements are wrong: does a remainder belong to no chunk?)"
    return usual_slip(got, [(f"what rank {rank} held at first", old) for rank, old in enumerate(data)])


def _score_ring(function, world_size, n):
    tensors = [torch.ones(n, device=f"sim:{rank}") for rank in range(world_size)]
    for rank in range(world_size):
        torch.sim.synchronize(rank)
        torch.sim.reset_peak_memory_stats(rank)
    before = [torch.sim.memory_allocated(rank) for rank in range(world_size)]
    spans = _call(function, tensors, "the scored run")
    _must_be_a_ring(spans, world_size, n, 4, f"{n:,} elements on {world_size} GPUs")
    beside = max(torch.sim.max_memory_allocated(rank) - before[rank] for rank in range(world_size))
    for rank in range(world_size):
        torch.sim.synchronize(rank)
    seconds = simgpu.now() - min(span.start_s for span in spans)
    rate = RING.host_link.bytes_per_s_per_direction * op_costs.LINK_SHARE
    bound = bound_seconds(4 * n, world_size, rate)
    time = f"{seconds * 1e3:.2f} ms, the bound is {bound * 1e3:.2f} ms"
    memory = f"{beside / 2**20:.2f} MiB beside the buffer, one chunk is {4 * n / world_size / 2**20:.2f} MiB"
    return f"every rank holds the mean. Score on simulated {RING.name}, 4 MiB on each rank: {time}; {memory}"


@check
def recursive_doubling(function):
    """``function(world_size)``: the steps, lists of Send, of an all-reduce of one chunk in log₂ P steps."""
    for world_size in (1, 2, 4, 8, 16, 32):
        given, least = many(world_size, "rank"), round(math.log2(world_size))
        schedule = _schedule(function, world_size, given)
        try:
            schedules.check(schedule, "all-reduce")
        except (ValueError, TypeError) as error:  # of a rank that is no number
            raise Wrong(f"{given}: {error}") from error
        if len(schedule.steps) != least:
            raise Wrong(f"{given}: expected {many(least, 'step')}, got {len(schedule.steps)}")
        _must_agree_in_bits(schedule, given)
    return _score_steps(_schedule(function, 8, "8 ranks"))


def _must_agree_in_bits(schedule, given):
    """Raise Wrong where ranks add the same numbers in another order, which sets of ranks cannot tell."""
    rows = torch.randn(schedule.world_size, 64, generator=torch.Generator().manual_seed(0))
    ranks = list(rows.clone())
    run(schedule, ranks)
    other = next((rank for rank, result in enumerate(ranks) if not torch.equal(result, ranks[0])), None)
    if other is not None:
        raise Wrong(
            f"{given}: ranks 0 and {other} add up in different orders and get different bits; "
            "two ranks that exchange their buffers compute the same sum"
        )


def _schedule(function, world_size, given):
    answer = attempt(function, world_size, given=given)
    rows = listed(answer)
    steps = [None] if rows is None else [listed(step, unordered=True) for step in rows]
    if None in steps:
        raise Wrong(f"{given}: expected a list of steps, each a list of Send; got {typed(answer)}")
    if not all(isinstance(send, schedules.Send) for step in steps for send in step):
        raise Wrong(f"{given}: a step may hold nothing but Send(src, dst, start, stop, op)")
    return schedules.Schedule("your schedule", world_size, 1, tuple(map(tuple, steps)))


def _score_steps(schedule):
    rivals = (schedule, schedules.allreduce_tree(8), schedules.allreduce_ring(8))

    def microseconds():
        return [run(s, [torch.ones(256, device=f"sim:{r}") for r in range(8)]).seconds * 1e6 for s in rivals]

    yours, tree, ring = _simulated(SWITCH, microseconds)
    (hop,) = SWITCH.route(0, 1)
    bound = 3 * op_costs.copy_seconds(0, hop.link) * 1e6
    score = f"{yours:.0f} µs, three messages in a row take {bound:.0f} µs (tree {tree:.0f} µs, ring {ring:.0f} µs)"
    return f"every contribution arrives once. Score on simulated {SWITCH.name}, 1 KiB on each rank: {score}"


def _simulated(machine, judge):
    """Return ``judge()``, called while another machine is simulated."""
    before = simgpu.machine() if simgpu.is_enabled() else None
    simgpu.enable(machine=machine)
    try:
        return judge()
    except BaseException as error:
        for each in filter(None, (error, error.__cause__)):
            traceback.clear_frames(each.__traceback__)  # whose variables hold tensors on these GPUs
        raise
    finally:
        with contextlib.suppress(RuntimeError):  # the reader's code may have kept a tensor on one of these GPUs
            simgpu.enable(machine=before) if before else simgpu.disable()
