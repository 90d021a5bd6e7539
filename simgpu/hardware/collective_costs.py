"""What a collective of a library takes on a machine: NCCL's algorithms and protocols, chosen as NCCL chooses them.

    small     LL, LL128     data and flag travel together: little waiting at each hop, part of the bandwidth
    large     Simple        whole chunks, then one flag: all of the bandwidth, more waiting

    inside a node    rings, as many side by side as there are links; NVLink SHARP where the switch adds (all_reduce)
    across nodes     the same rings through all adapters, or a double binary tree with a chain inside each node

A candidate costs  start + hops · α + bytes that pass a link ÷ β + bytes that stay ÷ memory  and is chosen by what NCCL
BELIEVES of it: the tables in its source, src/graph/tuning.cc (2.28). What it then TAKES was fitted to 441 published
rows: 2 to 8 A100-SXM4-80GB and H100 (80 GB HBM3), 512 B to 512 MiB. No row crosses nodes or PCIe: there a hop is as
long, and on PCIe as much longer than over NVLink, as NCCL believes. A network of a longer latency than InfiniBand's
adds that to each hop. Over 2 to 32 nodes of Amazon's p5, from 32 MiB on, 45 all_reduces are 10 % off and 35 alltoalls
11 % (github.com/crazyguitar/aws-gpu-communication-benchmark): no constant was fitted to them, but that NCCL chooses
for itself there was decided with them in sight. Small buffers over that network are priced too high.

The median error is 3 to 8 % for each card in each of three bands (to 64 KiB, to 8 MiB, above). Fits to fewer
rows were 2 to 12 % off on the others: benchmarks/fit_collectives.py. Sizes are nccl-tests': the
whole buffer, before a reduce_scatter and after an all_gather.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from simgpu.hardware.arguments import find, not_negative, whole
from simgpu.hardware.gpus import GPU
from simgpu.hardware.rings import Group, busiest_seconds_per_byte, group
from simgpu.hardware.topology import Machine

US = 1e-6
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter")
_DIRECT = ("alltoall", "gather", "scatter")  # messages straight between two GPUs

# -- what NCCL believes ----------------------------------------------------------------------------------------------

# By protocol: the base latency; what a hop adds inside a node ("NVLink", "PCIe") and between nodes ("ring", "tree").
BELIEVED_START_S = {"LL": 6.6 * US, "LL128": 14 * US, "Simple": 8.4 * US}
BELIEVED_HOP_S = {
    "LL": {"NVLink": 0.6 * US, "PCIe": 1.0 * US, "ring": 2.7 * US, "tree": 5.0 * US},
    "LL128": {"NVLink": 1.9 * US, "PCIe": 2.5 * US, "ring": 4.0 * US, "tree": 8.5 * US},
    "Simple": {"NVLink": 3.4 * US, "PCIe": 5.7 * US, "ring": 14 * US, "tree": 14 * US},
}
BELIEVED_SHARP_S = 25 * US
SHARP_BELIEVED = 0.85  # of the links' rate
BELIEVED_SHARE = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}  # of the links' rate
# The most that LL makes of one node's links, for cards since that month, and of several nodes' networks.
LL_BYTES_PER_S = {"2022-03": 141e9, "2020-05": 87.7e9, "": 39e9}
LL_ACROSS_BYTES_PER_S = 20.4e9
TREE_SHARE = 0.92 * 0.85  # of the rings' rate, as trees split and join

# -- what it takes ---------------------------------------------------------------------------------------------------

# Launching the collective's kernel and meeting the other ranks, on cards until Ampere; then what a protocol adds to
# that, what a hop over NVLink takes, and the share that it reaches of the links' rate.
START_S = 7.7 * US
ADDED_S = {"LL": 0, "LL128": 13 * US, "Simple": 15 * US}
HOP_S = {"LL": 1.1 * US, "LL128": 1.0 * US, "Simple": 6.3 * US}
SHARE = {"LL": 0.55, "LL128": 0.70, "Simple": 1.0}
# While LL fills its first channel, time grows with the bytes; further channels then share what is added.
FILLING_S, FILLED_BYTES = 3.4 * US, 16 * 1024
# What stays on a GPU, one chunk of the ring, is read and written by the few multiprocessors that the channels occupy.
STAYING_SHARE = 0.21
# Hopper's fixed parts are shorter: its clock is 1.4 times Ampere's, and the hosts around it are younger.
HOPPER, HOPPER_PACE = "2022-03", 0.62
# Messages straight between two GPUs, and the switch's additions, need more bytes until all channels are busy.
DIRECT_S, PEER_S, DIRECT_FILLING_S, DIRECT_SHARE = 2.7 * US, 0.34 * US, 28 * US, 0.8
SHARP_S, SHARP_FILLING_S, SHARP_SHARE = 12 * US, 88 * US, 0.81
BUSY_BYTES = 4.7e6
SHARP_RANKS = 8  # rows of 2 and 4 GPUs follow rings


@dataclass(frozen=True)
class Estimate:
    """What a collective takes, and what NCCL would run.

    Attributes:
        seconds: From the moment at which the last rank has called it.
        algorithm: "ring", "tree", "sharp", "direct"; "none" for one GPU.
        protocol: "LL", "LL128", "Simple"; "none" for one GPU.
    """

    seconds: float
    algorithm: str
    protocol: str


Candidate = tuple[float, Estimate]  # the seconds that NCCL believes in, and what it takes


def seconds(operation: str, machine: Machine, gpus: int | Sequence[int], nbytes: float) -> float:
    """Return the seconds of one collective; the arguments are those of `estimate`."""
    return estimate(operation, machine, gpus, nbytes).seconds


def estimate(
    operation: str,
    machine: Machine,
    gpus: int | Sequence[int],
    nbytes: float,
    root: int = 0,
    algorithm: str | None = None,
) -> Estimate:
    """Return the `Estimate` of one collective over some GPUs of a machine; 0 seconds for one GPU alone.

    A reduce takes as long as a broadcast, its way reversed; a gather or scatter is as many messages at once, as in
    PyTorch. No published row was at hand for these three.

    Args:
        operation: One of `OPERATIONS`.
        machine: The machine or cluster.
        gpus: The GPUs' numbers there, or how many of the first ones.
        nbytes: The bytes of a rank's whole buffer, before a reduce_scatter and after an all_gather; the root's in a
            gather or scatter.
        root: The place among `gpus` of the root of a gather or scatter.
        algorithm: The algorithm to take, as ``NCCL_ALGO`` forces it; by default what NCCL would choose.

    Raises:
        ValueError: The operation or the algorithm is unknown or does not exist on these GPUs, the machine does not have
            the GPUs, or `nbytes` is negative or not finite.
    """
    find(dict.fromkeys(OPERATIONS), operation, "operation")
    not_negative("a collective's bytes", nbytes)
    numbers = _numbers(machine, gpus)
    if len(numbers) == 1:
        return Estimate(0.0, "none", "none")
    root = whole("a root's place among the GPUs", root, 0, len(numbers) - 1)
    ranks = group(machine, numbers)
    candidates: list[Candidate]
    if operation in _DIRECT:
        pace = busiest_seconds_per_byte(machine, numbers, None if operation == "alltoall" else root)
        candidates = [(0, Estimate(_direct_seconds(ranks, nbytes, pace), "direct", "Simple"))]
    else:
        candidates = [*_rings(operation, ranks, nbytes)]
        candidates += _trees(ranks, nbytes) if operation == "all_reduce" else []
    if algorithm is not None:
        there = dict.fromkeys(found.algorithm for _, found in candidates)
        find(there, algorithm, f"algorithm for {operation} over these GPUs")
    fit = [candidate for candidate in candidates if algorithm in (None, candidate[1].algorithm)]
    return min(fit, key=lambda candidate: candidate[0])[1]  # what NCCL believes to be the fastest


def _numbers(machine: Machine, gpus: int | Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of the GPUs that `gpus` means; raises ValueError where the machine does not have them."""
    if isinstance(gpus, str) or not isinstance(gpus, Sequence):
        return tuple(range(whole(f"the number of GPUs of a collective on {machine.name}", gpus, 1, machine.count)))
    if not gpus or len(set(gpus)) < len(gpus) or not all(0 <= gpu < machine.count for gpu in gpus):
        raise ValueError(f"expected different GPUs among 0 to {machine.count - 1} of {machine.name}, got {list(gpus)}")
    return tuple(gpus)


# -- candidates: (what NCCL believes, what it takes) -----------------------------------------------------------------


def _rings(operation: str, ranks: Group, nbytes: float) -> Iterator[Candidate]:
    """Yield a candidate for each protocol of rings: every rank sends to the next, P − 1 times or twice that."""
    others, rounds = ranks.gpus - 1, 2 if operation == "all_reduce" else 1
    chain = operation in ("broadcast", "reduce")  # everything passes every link, and no chunk stays
    passing = nbytes if chain else rounds * others / ranks.gpus * nbytes
    staying = 0 if chain else nbytes / ranks.gpus
    across = rounds * (ranks.nodes - 1)
    for protocol in _protocols(ranks):
        hops = {ranks.inside: rounds * others - across, "ring": across}
        yield _candidate("ring", protocol, ranks, hops, passing, staying)


def _trees(ranks: Group, nbytes: float) -> Iterator[Candidate]:
    """Yield what else NCCL has for an all_reduce: the switch's additions, and trees over several nodes."""
    levels = math.ceil(math.log2(ranks.nodes))
    if ranks.machine.sharp and min(map(len, ranks.parts)) >= SHARP_RANKS:
        yield _sharp(ranks, nbytes, levels)
    if ranks.nodes == 2:  # each is the root of one of the two trees: S crosses its adapters, with more nodes 2 S
        ranks = replace(ranks, network_bytes_per_s=2 * ranks.network_bytes_per_s)
    for protocol in _protocols(ranks) if ranks.nodes > 1 else ():
        hops = {ranks.inside: 2 * (max(map(len, ranks.parts)) - 1), "tree": 2 * levels}
        yield _candidate("tree", protocol, ranks, hops, 2 * nbytes / TREE_SHARE, 0)


def _protocols(ranks: Group) -> Iterable[str]:
    """LL128 relies on stores of 128 bytes that arrive whole, which only NVLink promises."""
    return BELIEVED_START_S if ranks.inside == "NVLink" else ("LL", "Simple")


def _candidate(
    algorithm: str, protocol: str, ranks: Group, hops: dict[str, int], passing: float, staying: float
) -> Candidate:
    believed_rate, rate = _rates(protocol, ranks)
    across = {kind: count for kind, count in hops.items() if kind != ranks.inside}
    network = sum(count * (BELIEVED_HOP_S[protocol][kind] + _late_s(ranks)) for kind, count in across.items())
    inside = hops[ranks.inside] * BELIEVED_HOP_S[protocol][ranks.inside]
    flush = _late_s(ranks) * sum(across.values()) if protocol == "Simple" else 0  # NCCL counts it, few networks need it
    believed = BELIEVED_START_S[protocol] + inside + network + flush + passing / believed_rate
    fixed = START_S + ADDED_S[protocol] + hops[ranks.inside] * _hop_seconds(protocol, ranks.inside)
    if protocol == "LL":
        fixed += FILLING_S * passing / (passing + FILLED_BYTES)
    moving = passing / rate + staying / (STAYING_SHARE * ranks.machine.gpu.memory_bytes_per_s)
    return believed, Estimate(_pace(ranks.machine.gpu) * fixed + network + moving, algorithm, protocol)


def _rates(protocol: str, ranks: Group) -> tuple[float, float]:
    """Return the bytes a second that NCCL believes a protocol to reach over the slowest link, and those it reaches."""
    believed = BELIEVED_SHARE[protocol] * ranks.bytes_per_s
    if protocol == "LL" and ranks.nodes > 1:
        return (min(believed, LL_ACROSS_BYTES_PER_S),) * 2
    if protocol == "LL":
        released = ranks.machine.gpu.released
        believed = min(believed, next(rate for month, rate in LL_BYTES_PER_S.items() if released >= month))
    return believed, SHARE[protocol] * ranks.bytes_per_s


def _late_s(ranks: Group) -> float:
    """Return by how many seconds the network's latency is more than the InfiniBand's that NCCL's tables hold."""
    network = ranks.machine.network
    latency = network.latency_s if network and ranks.nodes > 1 else None
    return max(0.0, (latency or 0) - BELIEVED_HOP_S["LL"]["ring"])


def _hop_seconds(protocol: str, inside: str) -> float:
    """Over PCIe nothing was measured: a hop is longer by as much as NCCL believes."""
    return HOP_S[protocol] * BELIEVED_HOP_S[protocol][inside] / BELIEVED_HOP_S[protocol]["NVLink"]


def _sharp(ranks: Group, nbytes: float, levels: int) -> Candidate:
    """NVLink SHARP: a rank's buffer passes its links once and 1/P of it a second time, for the switch adds and spreads.

    Several nodes: the nodes' sums meet in a tree over the network, each adapter with its GPU's part.
    """
    per_node = ranks.gpus // ranks.nodes
    late = _late_s(ranks)
    network = 2 * levels * (BELIEVED_HOP_S["Simple"]["tree"] + late)
    crossing = min(levels, 2) * nbytes / ranks.network_bytes_per_s
    believed = BELIEVED_SHARP_S + network + 2 * levels * late  # a flush, as in `_candidate`
    believed += max(nbytes / (SHARP_BELIEVED * ranks.node_bytes_per_s), crossing)
    fixed = START_S + SHARP_S + SHARP_FILLING_S * nbytes / (nbytes + BUSY_BYTES)
    moving = max(nbytes * (1 + 1 / per_node) / (SHARP_SHARE * ranks.node_bytes_per_s), crossing)
    return believed, Estimate(_pace(ranks.machine.gpu) * fixed + network + moving, "sharp", "Simple")


def _direct_seconds(ranks: Group, nbytes: float, seconds_per_byte: float) -> float:
    """Every rank sends 1/P of its buffer to each other, all at once: the busiest wire decides."""
    filling = DIRECT_FILLING_S * nbytes / (nbytes + BUSY_BYTES) + FILLING_S * nbytes / (nbytes + FILLED_BYTES)
    fixed = START_S + DIRECT_S + PEER_S * (ranks.gpus - 1) + filling
    network = BELIEVED_HOP_S["LL"]["ring"] + _late_s(ranks) if ranks.nodes > 1 else 0
    return _pace(ranks.machine.gpu) * fixed + network + nbytes * seconds_per_byte / DIRECT_SHARE


def _pace(gpu: GPU) -> float:
    return HOPPER_PACE if gpu.released >= HOPPER else 1
