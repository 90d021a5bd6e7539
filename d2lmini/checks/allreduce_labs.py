"""Checks of the labs on all-reduce: from messages between ranks, a ring that hangs, the cheapest sum for a size."""

import re
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist

import simgpu
from d2lmini.checks.mechanism import Wrong, apart, called, check, many, need_gpus, scored
from d2lmini.checks.traced import run_on_ranks
from simgpu.hardware.machines import build

SHAPES = ((1, 5), (2, 6), (3, 7), (4, 12), (4, 3))  # ranks, numbers
SCORED_RANKS, SCORED_NUMBERS, BOOK_MS = 4, 2**17, 0.32
GPU_OUT = re.compile(r"gpu\d+ out$")  # where what leaves a GPU is seen once
SMALL = 1  # byte that a copy to the host may have: the answer to a question, such as `any`
HANGS = (4, 8)  # ranks and numbers of the run that hangs
SLOW, FAST = (1e-3, 1e12), (1e-12, 1e3)  # α and β with which steps decide, and bytes
EQUAL = (1e-6, 4e6)  # with which 48 bytes take as long as 12 α: the ring wins on 4 ranks, and never on 2
POWERS = ((1, 5, SLOW), (2, 6, SLOW), (4, 12, FAST), (4, 3, FAST), (4, 3, SLOW))  # ranks, numbers, α, β
SIZED = (  # card, seconds that are added to a link's latency, numbers, µs and messages a rank of the book's answer
    ("V100-PCIe-16GB", 0, 2**11, 60, 2),
    ("V100-PCIe-16GB", 0, 2**18, 573, 6),
    ("V100-SXM2-16GB", 0, 2**18, 68, 2),
    ("V100-PCIe-16GB", 200e-6, 2**18, 1499, 2),
)
SLOWER = 1.1  # times the book's own, which an answer may take
SILENT, LINE = 2, "C"  # the rank that leaves out a message, and the line where it does


@check
def send_receive(function):
    """``function(tensor)``, on every rank: the sum of all ranks' tensors, in place, by messages between two ranks."""
    for ranks, n in SHAPES:
        data = [(torch.arange(n, dtype=torch.float64) + 1) * 10**rank + 1 / 3 for rank in range(ranks)]
        _try_sum(function, data, f"{many(n, 'float64 number')} on {many(ranks, 'rank')}")
    numbers = torch.Generator().manual_seed(0)
    data = list(torch.randn(SCORED_RANKS, SCORED_NUMBERS, generator=numbers, dtype=torch.float64))
    machine = build(max(SCORED_RANKS, torch.sim.device_count()), "V100-PCIe-16GB", "PCIe3-x16")
    with simgpu.use_clock(simgpu.Clock(machine)):
        seconds, _ = _try_sum(function, data, f"{SCORED_NUMBERS:,} float64 numbers on {SCORED_RANKS} ranks")
    told = scored("send_receive", seconds * 1e3, BOOK_MS, f"ms for 1 MiB on {SCORED_RANKS} ranks")
    return f"the sums are right, and no rank sends more than in a ring; {told}"


@check
def hanging_ring(function, rank=None, line=None):
    """``function(tensor)``, on every rank: a ring that also adds zeros; `rank` and `line` say where it went wrong."""
    ranks, n = HANGS
    data = [torch.full((n,), 10.0**rank, dtype=torch.float64) for rank in range(ranks)]
    _try_sum(function, data, f"{many(n, 'number')} on {many(ranks, 'rank')}, none of them zero")
    data[SILENT].tensor_split(ranks)[SILENT].zero_()
    _try_sum(function, data, f"{many(n, 'number')} on {many(ranks, 'rank')}, chunk {SILENT} of rank {SILENT} zero")
    for ranks, n in ((1, 3), (3, 7), (4, 3)):
        zeros = [torch.zeros(n, dtype=torch.float64) for _ in range(ranks)]
        zeros[-1] += torch.arange(n)
        _try_sum(function, zeros, f"{many(n, 'number')} on {many(ranks, 'rank')}, all zero but on the last rank")
    right_line = str(line).strip().upper() == LINE
    if not right_line or rank != SILENT:
        told = "The rank that waits is not the one that left something out"
        if rank == SILENT:
            told = "The rank is right. Which line decides that a message is not sent?"
        elif right_line:
            told = f"The line is right. {told}"
        raise Wrong(
            f"the sums are right now; but which line was wrong, and on which rank? rank={rank!r}, line={line!r} is not "
            f"it. {told}"
        )
    return f"rank {SILENT} left out a message that rank {SILENT + 1} waited for (line {LINE}), and now nobody does"


@check
def cheapest_sum(function):
    """``function(tensor, alpha, beta)``, on every rank: the sum, by the algorithm that is faster for size and link."""
    for case in POWERS:
        _try_power(function, *case)
    total = sum(_time_sum(function, *case) for case in SIZED)
    given, sent = _try_power(function, 2, 6, EQUAL)
    if sent > 1:
        raise Wrong(
            f"{given}: the sums are right, but each rank sends {sent} messages. On 2 ranks one with the whole buffer "
            "takes α + n/β, and two with half of it take 2α + n/β: does your choice depend on P?"
        )
    book = sum(microseconds for *_, microseconds, _ in SIZED)
    told = scored("cheapest_sum", total, book, "µs for four sums on 4 ranks", ".0f")
    return f"the sums are right, and fast for every size and link; {told}"


def _try_power(function, ranks, n, link):
    """Return what a sum was given in words, and the messages that rank 0 sent."""
    alpha, beta = link
    data = [(torch.arange(n, dtype=torch.float64) + 1) * 10**rank + 1 / 3 for rank in range(ranks)]
    given = f"{many(n, 'float64 number')} on {many(ranks, 'rank')}, alpha={alpha:g}, beta={beta:g}"
    return given, _try_sum(partial(function, alpha=alpha, beta=beta), data, given, bounded=False)[1]


def _time_sum(function, gpu, further, n, enough, messages):
    """Return the microseconds of a sum; raise Wrong where it takes longer than the book's."""
    numbers = torch.Generator().manual_seed(0)
    data = list(torch.randn(SCORED_RANKS, n, generator=numbers, dtype=torch.float64))
    need_gpus(SCORED_RANKS)
    machine = build(torch.sim.device_count(), gpu)
    slow = replace(machine.host_link, latency_s=machine.host_link.latency_s + further)
    with simgpu.use_clock(simgpu.Clock(replace(machine, host_link=slow))):
        short, long = (max(simgpu.spawn(_exchange, (size,), nprocs=2)) for size in (1, 2**17))
        alpha, beta = short, 8 * 2**17 / (long - short)
        given = f"{8 * n // 2**10:,} KiB on 4 ranks, α = {alpha * 1e6:.0f} µs, β = {beta / 1e9:.0f} GB/s"
        seconds, sent = _try_sum(partial(function, alpha=alpha, beta=beta), data, given, bounded=False)
    if seconds * 1e6 > SLOWER * enough:
        raise Wrong(
            f"{given}: the sums are right, but they take {seconds * 1e6:,.0f} µs, with {many(sent, 'message')} from "
            f"each rank; {enough:,} µs are enough, with {messages}. Compare the times of both algorithms by α, β, P, n"
        )
    return seconds * 1e6


def _exchange(rank, n):
    """Return the seconds in which two ranks exchange n numbers and add them."""
    tensor = torch.ones(n, dtype=torch.float64, device="sim")
    received = torch.empty_like(tensor)
    dist.barrier()
    begin = simgpu.now()
    both = [dist.P2POp(dist.isend, tensor, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    tensor += received
    torch.sim.synchronize()
    return simgpu.now() - begin


def _try_sum(function, data, given, bounded=True):
    """Return the seconds of the reader's sum of this data, and the messages that rank 0 sends.

    Args:
        function: The reader's.
        data: A tensor for each rank.
        given: The same in words.
        bounded: Whether no rank may send more than in a ring.

    Raises:
        Wrong: Other sums, ranks that differ in a bit, other calls than messages, or more bytes than needed.
    """
    ranks, n = len(data), len(data[0])
    want = torch.stack(data).sum(0)
    need_gpus(SCORED_RANKS)
    with simgpu.trace() as trace:
        found, messages = run_on_ranks(_by_reader, ranks, given, function, data)
    tensors = [tensor for tensor, _, _ in found]
    for rank, got in enumerate(tensors):
        if got.isnan().any():
            raise Wrong(
                f"{given}: rank {rank} received numbers that were written after the sender's function had returned: "
                "wait for the work of every isend, until then its tensor must not change"
            )
        if not torch.allclose(got, want, rtol=1e-12, atol=1e-12):
            place = int((got - want).abs().argmax())
            told, it = apart(want[place].item(), got[place].item())
            raise Wrong(f"{given}: number {place} of rank {rank} should be {told}, it is {it}")
        if not torch.equal(got, tensors[0]):
            raise Wrong(f"{given}: ranks 0 and {rank} have different bits; add up each number once, then send copies")
    _must_be_messages(trace.spans, messages, given, sum(t.nbytes for t in data))
    most = 2 * (ranks - 1) * 2 * -(-n // (2 * ranks)) * data[0].itemsize  # chunks rounded up, in two half rings
    for rank in range(ranks) if bounded else ():
        sent = sum(span.nbytes for span in _sent(messages, rank))
        if sent > most:
            ring = 2 * (ranks - 1) * -(-n // ranks) * data[0].itemsize
            raise Wrong(f"{given}: the sums are right, but rank {rank} sends {sent:,} bytes; a ring sends {ring:,}")
    return max(end for _, _, end in found) - min(begin for _, begin, _ in found), len(_sent(messages, 0))


def _sent(messages, rank):
    """Return the spans of what a rank sends; its spans of what it receives have no bytes."""
    return [s for s in messages if s.place == f"gpu{rank}" and s.name.startswith("send") and s.nbytes]


def _must_be_messages(spans, messages, given, own):
    """Raise Wrong for collectives but barriers, and for more bytes copied to the host than the `own` ones."""
    other = next((span.name.split()[0] for span in messages if not span.name.startswith(("send", "barrier"))), None)
    if other:
        raise Wrong(f"{given}: your code calls {other}; use messages between two ranks only")
    copied = sum(span.nbytes for span in spans if span.name.startswith("copy") and GPU_OUT.search(span.place))
    if copied > own + SMALL * len(spans):
        raise Wrong(f"{given}: your code copies between devices; send from the GPU and receive on the GPU")


def _by_reader(rank, function, data):
    """Return the rank's tensor after the reader's sum, and when it began and ended."""
    tensor = data[rank].to("sim")
    place = tensor.data_ptr()
    dist.barrier()
    begin = simgpu.now()
    called(function, tensor)
    torch.sim.synchronize()
    end = simgpu.now()
    if tensor.data_ptr() != place:
        raise ValueError("the tensor has other memory now; write into that of the given one")
    result = tensor.clone()
    tensor.fill_(torch.nan)  # as a caller may: what has not been sent by now comes out as that
    return result.cpu(), begin, end
