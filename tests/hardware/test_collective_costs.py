"""What a library's collective takes: published rates, closed formulas for what passes a link, and the choices."""

from itertools import pairwise

import pytest

from simgpu.hardware.collective_costs import OPERATIONS, estimate, seconds
from simgpu.hardware.machines import MACHINES, build, cluster
from simgpu.hardware.op_costs import payload_bytes_per_s
from simgpu.hardware.rings import group

KIB, MIB, GIB = 2**10, 2**20, 2**30
A100, H100, DGX1 = MACHINES["DGX-A100"], MACHINES["DGX-H100"], MACHINES["DGX-1-V100"]
PCIE = build(8, "RTX 3090")


def busbw(machine, gpus, nbytes):
    """The bus bandwidth of an all-reduce as nccl-tests prints it."""
    return 2 * (gpus - 1) / gpus * nbytes / seconds("all_reduce", machine, gpus, nbytes)


@pytest.mark.parametrize(
    ("machine", "gpus", "nbytes", "gigabytes"),
    [
        (H100, 8, 8 * GIB, 476),  # NVIDIA/nccl-tests#290, "in the expected range for H100"
        (build(2, "A100-SXM4-80GB"), 2, 8 * GIB, 208),  # NVIDIA/nccl-tests#178, two A100 with 12 NVLinks
    ],
)
def test_published_bus_bandwidth(machine, gpus, nbytes, gigabytes):
    assert busbw(machine, gpus, nbytes) / 1e9 == pytest.approx(gigabytes, rel=0.1)


@pytest.mark.parametrize("machine", [A100, H100, DGX1, PCIE, cluster(A100, 2), cluster(H100, 4)], ids=lambda m: m.name)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_beats_the_links(machine, operation):
    """A rank must receive (P − 1)/P of a gathered buffer, all of a broadcast one, and more in a ring's all-reduce.

    What one root gathers comes through its own links, and from other nodes through its adapter.
    """
    for gpus in {2, machine.count} - {2 if machine.count > 8 else 0}:
        ranks = group(machine, gpus)
        least = {"all_reduce": 1, "broadcast": 1, "reduce": 1}.get(operation, (gpus - 1) / gpus) * GIB
        if operation == "alltoall" and ranks.nodes > 1:  # all but what stays in the node goes through the adapters
            least = machine.node.count * (gpus - machine.node.count) / gpus * GIB
        assert seconds(operation, machine, gpus, GIB) > least / ranks.bytes_per_s
        assert 0 < seconds(operation, machine, gpus, 0) < seconds(operation, machine, gpus, MIB)
        assert seconds(operation, machine, gpus, MIB) < seconds(operation, machine, gpus, GIB)


@pytest.mark.parametrize("machine", [A100, DGX1, PCIE], ids=lambda machine: machine.name)
def test_large_rings_come_close_to_their_links(machine):
    assert 0.85 < busbw(machine, 8, 4 * GIB) / group(machine, 8).bytes_per_s < 1


def test_small_rings_pay_for_each_hop():
    """2(P − 1) hops in an all-reduce, P − 1 in an all-gather: equal steps from one count to the next."""
    hop = seconds("all_gather", A100, 3, 0) - seconds("all_gather", A100, 2, 0)
    for gpus in range(3, 8):
        assert seconds("all_gather", A100, gpus + 1, 0) - seconds("all_gather", A100, gpus, 0) == pytest.approx(hop)
        assert seconds("all_reduce", A100, gpus + 1, 0) - seconds("all_reduce", A100, gpus, 0) == pytest.approx(2 * hop)
        assert seconds("reduce_scatter", A100, gpus, 0) == seconds("all_gather", A100, gpus, 0)
    assert seconds("all_reduce", PCIE, 8, 0) > seconds("all_reduce", A100, 8, 0) > seconds("all_reduce", H100, 8, 0)


def chosen(operation, machine, gpus):
    """The protocols from 1 KiB to 1 GiB, each where it begins to be chosen."""
    found = [estimate(operation, machine, gpus, 2**power).protocol for power in range(10, 31)]
    return list(dict.fromkeys(found))


def test_protocols_follow_the_size():
    assert chosen("all_reduce", A100, 8) == chosen("all_gather", A100, 8) == ["LL", "LL128", "Simple"]
    assert chosen("all_reduce", A100, 2) == ["LL", "Simple"]
    assert chosen("all_reduce", PCIE, 8) == ["LL", "Simple"]
    assert [estimate("all_gather", A100, 2, size).protocol for size in (MIB, 2 * MIB)] == ["LL", "Simple"]


def test_algorithms_follow_machine_and_size():
    def algorithms(machine, gpus, *sizes):
        return [estimate("all_reduce", machine, gpus, size).algorithm for size in sizes]

    assert algorithms(A100, 8, KIB, GIB) == ["ring", "ring"]
    assert algorithms(H100, 8, KIB, GIB) == ["ring", "sharp"]
    assert algorithms(H100, 4, KIB, GIB) == ["ring", "ring"]
    assert algorithms(cluster(A100, 4), 32, KIB, 16 * GIB) == ["tree", "ring"]
    assert algorithms(cluster(H100, 4), 32, KIB, GIB) == ["tree", "sharp"]
    assert estimate("all_gather", H100, 8, GIB).algorithm == "ring"
    assert estimate("alltoall", H100, 8, GIB).algorithm == "direct"


@pytest.mark.parametrize(("nodes", "share"), [(2, 1 / 2), (4, 1), (8, 1)])
def test_over_two_nodes_trees_send_half_of_what_they_send_over_more(nodes, share):
    """There each node is the root of one of two trees, so one buffer leaves it, not two; see NVIDIA/nccl-tests#196."""

    def slope(nodes):
        machine = cluster(MACHINES["p4d.24xlarge"], nodes)  # its network is far slower than its NVLink
        small, large = (estimate("all_reduce", machine, 8 * nodes, n, algorithm="tree") for n in (GIB, 2 * GIB))
        return large.seconds - small.seconds

    assert slope(nodes) == pytest.approx(share * slope(16))


def test_trees_over_nodes_grow_with_the_logarithm():
    times = [seconds("all_reduce", cluster(A100, nodes), 8 * nodes, 8) for nodes in (2, 4, 8, 16)]
    steps = [b - a for a, b in pairwise(times)]
    assert steps == pytest.approx([steps[0]] * 3)
    assert steps[0] > 0


@pytest.mark.parametrize(("operation", "rounds"), [("all_gather", 1), ("all_reduce", 2)])
def test_a_slow_networks_latency_comes_to_every_hop_between_nodes(operation, rounds):
    """A p5 has the GPUs and links of a DGX H100; its network takes 75 µs, where NCCL's tables hold 2.7 for a ring."""
    for nodes in (2, 16):
        near, far = (
            estimate(operation, cluster(MACHINES[name], nodes), 8 * nodes, 512, algorithm="ring")
            for name in ("DGX-H100", "p5.48xlarge")
        )
        assert near.protocol == far.protocol == "LL"
        assert far.seconds - near.seconds == pytest.approx(rounds * (nodes - 1) * 72.3e-6, rel=0.01)


def test_amazons_two_nodes_are_near_what_was_published():
    """NVIDIA/nccl#527: 57 GB/s over two p4d, 1 GiB of float; trees pass 50, four adapters' rate, rings do not."""
    assert busbw(cluster(MACHINES["p4d.24xlarge"], 2), 16, GIB) / 1e9 == pytest.approx(57, rel=0.25)


@pytest.mark.parametrize(("gpus", "links"), [(2, 1), (3, 2), (4, 4), (6, 3), (7, 4), (8, 6)])
def test_rings_of_a_cube_mesh_take_the_links_of_the_gpu_with_the_fewest(gpus, links):
    ranks = group(DGX1, gpus)
    assert (ranks.inside, ranks.bytes_per_s) == ("NVLink", links * payload_bytes_per_s(DGX1.pair_link))


def test_where_no_ring_follows_the_links_all_goes_over_pcie():
    """Of the first five GPUs of a DGX-1 the last has a link to one other alone; two GPUs share each way to the host."""
    ranks = group(DGX1, 5)
    assert (ranks.inside, ranks.bytes_per_s) == ("PCIe", payload_bytes_per_s(DGX1.host_link) / 2)


@pytest.mark.parametrize("gpus", [(0, 1), (5, 2), (9, 8), (14, 11)])
def test_any_two_gpus_of_a_node_with_a_switch_are_as_the_first_two(gpus):
    assert seconds("all_reduce", cluster(A100, 2), gpus, MIB) == seconds("all_reduce", A100, 2, MIB)


def test_a_group_uses_the_adapters_that_its_gpus_have_on_every_node():
    pair, adapter = cluster(A100, 4), payload_bytes_per_s(A100.network)
    rates = [group(pair, gpus).bytes_per_s for gpus in ((3, 11), (3, 11, 19, 27), (2, 3, 10, 11), (0, 1, 2, 8))]
    assert rates == pytest.approx([adapter, adapter, 2 * adapter, adapter])
    shared = group(cluster(DGX1, 2), (0, 1, 8, 9))  # two GPUs to an adapter
    assert shared.bytes_per_s == pytest.approx(payload_bytes_per_s(DGX1.network))


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "broadcast", "alltoall"])
def test_an_uneven_group_is_no_faster_than_any_part_of_it_that_is_even(operation):
    nodes = cluster(H100, 3)
    for nbytes in (KIB, MIB, GIB):
        uneven = seconds(operation, nodes, 18, nbytes)
        assert uneven >= seconds(operation, nodes, (0, 1, 8, 9, 16, 17), nbytes)


@pytest.mark.parametrize("gpus", [(0, 3), (2, 1), (4, 7, 5, 6), (1, 2, 3), (7, 6, 5, 4, 3, 2, 1, 0)])
def test_any_gpus_of_a_cube_mesh_take_their_own_links(gpus):
    """The slowest is the one with the fewest links to others of the group, of which each has one or two."""
    counts = [sum(count for pair, count in DGX1.pairs if gpu in pair and set(pair) <= set(gpus)) for gpu in gpus]
    assert group(DGX1, gpus).bytes_per_s == pytest.approx(min(counts) * payload_bytes_per_s(DGX1.pair_link))


@pytest.mark.parametrize("operation", ["gather", "scatter"])
def test_a_root_of_few_bytes_waits_for_each_message(operation):
    assert seconds(operation, A100, 8, 0) > seconds(operation, A100, 2, 0)
    assert estimate(operation, PCIE, 8, GIB).seconds > GIB * 7 / 8 / PCIE.host_link.bytes_per_s_per_direction


def test_an_algorithm_can_be_forced():
    for algorithm in ("ring", "sharp"):
        assert estimate("all_reduce", H100, 8, GIB, algorithm=algorithm).algorithm == algorithm
    assert estimate("all_reduce", cluster(A100, 2), 16, 8, algorithm="ring").seconds > seconds(
        "all_reduce", cluster(A100, 2), 16, 8
    )


@pytest.mark.parametrize(
    ("operation", "gpus", "nbytes", "options", "says"),
    [
        *(("all_reduce", gpus, 8, {}, "0 to 7") for gpus in ((), (0, 0), (0, 8), (-1, 2))),
        ("all_reduce", 9, 8, {}, "got"),
        ("all_shout", 8, 8, {}, "'all_shout': choose one of all_reduce"),
        ("all_reduce", 8, -1, {}, "-1"),
        ("all_reduce", 8, GIB, {"algorithm": "sharp"}, "'sharp': choose one of ring"),
    ],
)
def test_what_cannot_be_is_refused(operation, gpus, nbytes, options, says):
    with pytest.raises(ValueError, match=says):
        estimate(operation, A100, gpus, nbytes, **options)


def test_one_alone_has_nothing_to_do():
    assert estimate("all_reduce", A100, 1, GIB).seconds == 0
