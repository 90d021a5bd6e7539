"""Collectives of simulated ranks take what the cost model of a library says, by the links that it takes."""

import itertools
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from cases import took

import simgpu
from simgpu import RankError
from simgpu.hardware.collective_costs import estimate
from simgpu.hardware.machines import MACHINES, build, cluster
from simgpu.hardware.op_costs import LAUNCH_S, payload_bytes_per_s

A100, H100, DGX1 = MACHINES["DGX-A100"], MACHINES["DGX-H100"], MACHINES["DGX-1-V100"]
KIB, MIB = 2**10, 2**20
PCIE = build(4, "RTX 3090")


def tensor(nbytes):
    return torch.empty(nbytes // 4, device="sim")


def collective(name, nbytes, group, n):
    """Call a collective whose whole buffer has `nbytes`."""
    whole, part, root = tensor(nbytes), tensor(nbytes // n), dist.get_process_group_ranks(group)[0]
    parts = list(whole.chunk(n)) if dist.get_rank() == root else None
    {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, root, group),
        "reduce": lambda: dist.reduce(whole, root, group=group),
        "alltoall": lambda: dist.all_to_all_single(tensor(nbytes), whole, group=group),
        "gather": lambda: dist.gather(part, parts, root, group),
        "scatter": lambda: dist.scatter(part, parts, root, group),
    }[name]()


def timed(machine, ranks, calls, **options):
    """Return the seconds of each call, (name, bytes), over some ranks of a machine, and the trace of them all."""

    def run(rank):
        group, seconds = dist.new_group(ranks), []
        for name, nbytes in calls if rank in ranks else ():
            dist.barrier(group)
            seconds.append(took(collective, name, nbytes, group, len(ranks)))
        return seconds

    simgpu.enable(machine=machine, shapes_only=True, memory=2**40)
    with simgpu.trace() as trace:
        results = simgpu.spawn(run, nprocs=max(ranks) + 1, **options)
    return results[ranks[0]], trace


GROUPS = [
    (A100, range(8)),
    (A100, [1, 4, 5]),
    (H100, range(8)),
    (DGX1, range(8)),
    (DGX1, range(5)),
    (PCIE, range(4)),
    (cluster(H100, 2), range(16)),
    (cluster(A100, 4), [3, 11, 19, 27]),
    (cluster(A100, 2), [0, 1, 2, 9]),
    (cluster(DGX1, 2), [0, 1, 4, 8, 9, 12]),
]
NAMES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter"]
SIZES = [3 * KIB * 4 * 5 * 7 * 8, 3 * MIB * 4 * 5 * 7 * 8]  # every number of ranks here divides them


def rates(machine):
    """Return the bytes a second of each wire between GPUs, or from and to the host."""
    hops = [
        hop
        for a in range(machine.count)
        for b in [*range(machine.count), None]
        if a != b
        for hop in [*machine.route(a, b), *machine.route(b, a)]
    ]
    return {wire: payload_bytes_per_s(hop.link) for hop in hops for wire in hop.wires}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("machine", "ranks"), GROUPS, ids=lambda x: getattr(x, "name", None) or str(list(x)))
def test_a_collective_takes_what_the_library_takes_over_links_that_can_carry_it(machine, ranks):
    calls = [(name, nbytes) for name in NAMES for nbytes in SIZES]
    seconds, trace = timed(machine, list(ranks), calls)
    wanted = [estimate(name, machine, tuple(ranks), nbytes) for name, nbytes in calls]
    assert seconds == pytest.approx([LAUNCH_S + estimate.seconds for estimate in wanted])
    assert all(small < large for small, large in zip(seconds[::2], seconds[1::2]))
    words = [
        span.name.split(", ")[-1]
        for span in trace.spans
        if span.place == f"gpu{ranks[0]}" and span.kind == "communication" and "barrier" not in span.name
    ]
    assert words == [f"{estimate.algorithm} {estimate.protocol}" for estimate in wanted]
    rate = rates(machine)
    for span in trace.spans:
        if span.kind == "copy":
            assert span.nbytes <= (span.end - span.start) / 1e12 * rate[span.place] * 1.000001, span


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("algorithm", "machine", "total"),
    [
        ("ring", cluster(A100, 2), lambda n, p: 2 * (p - 1) * n),
        ("tree", cluster(A100, 4), lambda n, p: 2 * (p - 1) * n),
        ("sharp", H100, lambda n, p: (p + 1) * n),
        ("ring", H100, lambda n, p: 2 * (p - 1) * n),
        ("sharp", cluster(H100, 3), lambda n, p: (p + 1) * n + 2 * 2 * n),
    ],
)
def test_an_algorithm_can_be_forced_and_sends_its_own_bytes(algorithm, machine, total):
    """Of three nodes, the sums pass two edges up and down again."""
    nbytes, ranks = 4 * 1237, list(range(machine.count))
    seconds, trace = timed(machine, ranks, [("all_reduce", nbytes)], allreduce=algorithm)
    wanted = estimate("all_reduce", machine, machine.count, nbytes, algorithm=algorithm)
    assert seconds == pytest.approx([LAUNCH_S + wanted.seconds])
    spans = [span for span in trace.spans if "all_reduce" in span.name and algorithm in span.name]
    assert sum(s.nbytes for s in spans if s.kind == "communication") == total(nbytes, len(ranks))
    way = Counter()
    for span in spans:
        way[span.place.split()[-1]] += span.nbytes
    assert way["out"] == way["in"] > 0


def test_an_algorithm_that_is_not_there_is_refused():
    simgpu.enable(2, gpu="V100-SXM2-16GB")
    for wrong in ("rings", "tree"):
        with pytest.raises(RankError, match=f"{wrong}.*choose one of ring"):
            simgpu.spawn(lambda rank: dist.all_reduce(tensor(8)), allreduce=wrong)


def test_collectives_share_no_wires_unless_they_have_the_same():
    """Two pairs at once take as long as one pair; the same pair twice, in groups of its own, twice as long."""

    def run(rank, *ranks):
        groups, data = [dist.new_group(pair) for pair in ranks], tensor(16 * MIB)
        mine = [group for pair, group in zip(ranks, groups) if rank in pair]
        return took(lambda: [work.wait() for work in [dist.all_reduce(data, group=g, async_op=True) for g in mine]])

    simgpu.enable(4, gpu="V100-SXM2-16GB")
    once = estimate("all_reduce", simgpu.machine(), 2, 16 * MIB).seconds
    assert simgpu.spawn(run, ([0, 1], [2, 3])) == pytest.approx([once] * 4, abs=2 * LAUNCH_S)
    assert simgpu.spawn(run, ([0, 1], [1, 0]))[:2] == pytest.approx([2 * once] * 2, abs=2 * LAUNCH_S)


@pytest.mark.parametrize("sizes", [[300, 300, 300], [1100, 700, 60, 5000]])
def test_ddp_with_shapes_only_forms_the_buckets_and_takes_the_time_of_ddp_with_numbers(sizes):
    def train(rank):
        layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise([20, *sizes])]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to("sim"), bucket_cap_mb=2)
        seconds = []
        for _ in range(3):
            dist.barrier()
            seconds.append(took(lambda: model(torch.ones(4, 20, device="sim")).sum().backward()))
        return seconds

    found = []
    for shapes_only in (False, True):
        simgpu.enable(machine=A100, shapes_only=shapes_only)
        with simgpu.trace() as trace:
            seconds = simgpu.spawn(train, nprocs=2)
        reduced = [span for span in trace.spans if "all_reduce" in span.name and span.place == "gpu0"]
        found.append((seconds, [span.nbytes for span in reduced]))
    for numbers, shapes in zip(found[0][0], found[1][0], strict=True):
        assert numbers == pytest.approx(shapes)  # to the picosecond, from another moment on
    assert found[0][1] == found[1][1]
