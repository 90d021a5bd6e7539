"""Checks of the labs on clusters: an all-reduce with fewer bytes between nodes, which rank or node is the slow one."""

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import torch
import torch.distributed as dist

import simgpu
from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, ask, brief, called, check, many, need_gpus, number, scored, typed
from d2lmini.checks.traced import run_on_ranks
from simgpu.hardware import LINKS, MACHINES, build, cluster, collective_costs

PER_NODE = 4
NODE = replace(build(PER_NODE, "V100-SXM2-32GB"), name="four V100", network=LINKS["Ethernet-100G"], adapters=1)
SHAPES = ((2, 4), (1, 3), (3, 1))  # nodes, GPUs in each
STEPS, SLOW_NUMBERS, USUAL_NUMBERS, HICCUP = 7, 2**22, 2**18, 150
CASES = (  # ranks, the slow one, what of it is slow, other ranks' one long step: a rank's first, its last, each once
    (8, 5, "GPU", {2: 1, 6: 7}),
    (4, 0, "GPU", {3: 2, 1: 6}),
    (3, 2, "GPU", {}),
    (4, 1, "host", {2: 3, 3: 5}),
    (8, 3, "GPU", {0: 4, 7: 7}),
)
PLATEAU, NOISE = 2**32, 0.03  # bytes; how far a rate of a pair is off, at most
FAULTY = {"uses 4 of its 8 adapters": {"adapters": 4}, "has lost 30 % of its rate": {"slower": 0.7}}


@check
def node_mean(function):
    """``function(x, inside, across)``, on each rank: x becomes the mean over all ranks, few bytes leave a node."""
    need_gpus(8)
    for nodes, each in SHAPES:
        for n in (8, 7, 1):
            _try_mean(function, nodes, each, n)
    n, given = 100_003, "100,003 numbers on 2 nodes of 4"
    machine = cluster(NODE, max(2, -(-torch.sim.device_count() // PER_NODE)))  # the reader may have more GPUs
    with simgpu.use_clock(simgpu.Clock(machine)), simgpu.trace() as trace:
        _try_mean(function, 2, PER_NODE, n)
    left = max(nbytes for link, nbytes in trace.link_bytes().items() if "adapter" in link and link.endswith("out"))
    most = 8 * (n + PER_NODE) / 1e3
    if left / 1e3 > most:
        raise Wrong(f"{given}: the mean is right, but {left / 1e3:,.0f} kB leave a node; at most {most:,.0f} need to")
    return f"every rank has the mean; {scored('node_mean', left / 1e3, most, 'kB leave a node', ',.0f')}"


def _try_mean(function, nodes, each, n):
    numbers = torch.Generator().manual_seed(n)
    data = torch.randn(nodes * each, n, generator=numbers, dtype=torch.float64)
    given = f"{many(n, 'number')} on {many(nodes, 'node')} of {each}"
    for rank, got in enumerate(_run(_mean_on_rank, nodes * each, given, function, each, data)):
        off = first_off("x", data.mean(0), got, rtol=1e-10, atol=1e-12)
        if off:
            hint = " (x is as it was: write the mean into it)" if torch.equal(got, data[rank]) else ""
            raise Wrong(f"{given}: on rank {rank} {off}{hint}")


def _mean_on_rank(rank, function, each, data):
    size, x = len(data), data[rank].to("sim")
    nodes = [list(range(i, i + each)) for i in range(0, size, each)]
    inside = [dist.new_group(ranks) for ranks in nodes]
    across = [dist.new_group(list(ranks)) for ranks in zip(*nodes)]
    called(function, x, inside[rank // each], across[rank % each])
    return x.cpu()


def _run(program, ranks, given, *args):
    """Run a program on ranks whose all-reduces are rings: a tree over two nodes would send as little as two levels."""
    return run_on_ranks(program, ranks, given, *args, allreduce="ring")[0]


@check
def slow_rank(function):
    """``function(compute, reduce, steps)``, on each rank: the number of the rank for which the others wait."""
    need_gpus(8)
    with simgpu.use_clock(simgpu.Clock(build(max(8, torch.sim.device_count()), "GTX 1080"))):
        for ranks, slow, where, hiccups in CASES:
            given = f"{ranks} ranks, the {where} of rank {slow} is slow"
            for rank, (answer, ran) in enumerate(_run(_steps_on_rank, ranks, given, function, slow, where, hiccups)):
                if number(answer) not in range(ranks):
                    raise Wrong(f"{given}: rank {rank} expected a rank's number, got {typed(answer)}")
                if number(answer) != slow:
                    step = hiccups.get(number(answer))
                    why = f", whose step {step} alone is long" if step else ", which is as fast as the others"
                    raise Wrong(f"{given}: rank {rank} returns {brief(answer)}{why}")
                if ran != [STEPS, STEPS]:
                    raise Wrong(
                        f"{given}: rank {rank} expected {STEPS} calls of compute and reduce each, got {brief(ran)}"
                    )
    return "the slow rank is found on GPU and host, and one long step misleads nobody, whichever it is"


def _steps_on_rank(rank, function, slow, where, hiccups):
    ran = [0, 0]
    x = torch.ones(SLOW_NUMBERS if (rank, where) == (slow, "GPU") else USUAL_NUMBERS, device="sim")
    gradient = torch.ones(16, device="sim")

    def compute():
        ran[0] += 1
        more = HICCUP if hiccups.get(rank) == ran[0] else 12 if (rank, where) == (slow, "host") else 0
        for _ in range(3 + more):
            x.mul_(1.0)

    def reduce():
        ran[1] += 1
        dist.all_reduce(gradient)

    return called(function, compute, reduce, STEPS), ran


@check
def slow_node(function):
    """``function(nodes, test)``: the node with the slow network, or -1; ``test(pairs)`` measures pairs of nodes."""
    for nodes in (8, 4, 3, 7, 16):
        for fault, kind in FAULTY.items():
            for slow in range(-1, nodes):
                given = f"{nodes} nodes, node {slow} {fault}" if slow >= 0 else f"{nodes} nodes, none is slow"
                calls, test = _pair_test(nodes, slow, **kind)
                got = ask(function, nodes, test, given=given, what="a node's number, or -1")
                if got != slow:
                    raise Wrong(f"{given}: expected {slow}, got {brief(got)}")
                if len(calls) > 2:
                    raise Wrong(f"{given}: {slow} is right, but test was called {many(len(calls), 'time')}; 2 suffice")
    return "two tests find the slow node among any number, or say that there is none"


def _pair_test(nodes, slow, adapters=8, slower=1.0):
    """Return the list of calls, and a function that measures pairs of nodes of a simulated cluster."""
    calls, noise = [], random.Random(nodes)
    good, bad = (_bus_bandwidth(n) for n in (8, adapters))

    def test(pairs):
        pairs = [tuple(pair) for pair in pairs]
        taken = Counter(node for pair in pairs for node in pair)
        if any(len(pair) != 2 or not set(pair) <= set(range(nodes)) for pair in pairs):
            raise ValueError(f"expected pairs of the nodes 0 to {nodes - 1}, got {brief(pairs)}")
        if twice := [node for node, times in taken.items() if times > 1]:
            raise ValueError(f"expected each node in one pair at most, got node {twice[0]} twice: {brief(pairs)}")
        calls.append(pairs)
        rates = [bad * slower if slow in pair else good for pair in pairs]
        return [rate * noise.uniform(1 - NOISE, 1 + NOISE) for rate in rates]

    return calls, test


@cache
def _bus_bandwidth(adapters):
    """Return the GB/s of a ring over two DGX A100 of which one has so many adapters: the slower node sets the rate."""
    machine = cluster(replace(MACHINES["DGX-A100"], adapters=adapters), 2)
    ranks = machine.count
    took = collective_costs.estimate("all_reduce", machine, ranks, PLATEAU, 0, "ring").seconds
    return 2 * (ranks - 1) / ranks * PLATEAU / took / 1e9
