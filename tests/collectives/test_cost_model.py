"""The cost of schedules: against the closed formulas, against the simulated clock, and the crossover."""

import math

import pytest
import torch

import simgpu
from d2lmini import devices
from d2lmini.collectives import cost_model, schedules
from d2lmini.collectives.cost_model import predict
from d2lmini.collectives.on_devices import allreduce
from simgpu.hardware import machines, op_costs

SWITCHED = machines.MACHINES["8xH200"]
each_algorithm = pytest.mark.parametrize("algorithm", schedules.ALLREDUCE)


def alpha_beta_gamma(machine):
    """Return α, and the seconds a float32 costs on the wire and in the sum, where every message has the same route."""
    (hop,) = machine.route(0, 1)
    alpha = op_costs.copy_seconds(0, hop.link)
    beta = 4 / (hop.link.bytes_per_s_per_direction * op_costs.LINK_SHARE)
    gamma = 12 / (machine.gpu.memory_bytes_per_s * op_costs.memory_share(machine.gpu, "pointwise"))
    return alpha, beta, gamma


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [8, 8 * 10**6])
def test_closed_formulas(world_size, n):
    """Thakur, Rabenseifner and Gropp 2005; each addition also starts a kernel, κ."""
    alpha, beta, gamma = alpha_beta_gamma(SWITCHED)
    kappa, steps, part = op_costs.KERNEL_S, math.log2(world_size), (world_size - 1) / world_size
    formulas = {
        "naive": 2 * (world_size - 1) * (alpha + n * beta) + (world_size - 1) * (n * gamma + kappa),
        "tree": 2 * steps * (alpha + n * beta) + steps * (n * gamma + kappa),
        "ring": 2 * (world_size - 1) * alpha + 2 * part * n * beta + part * n * gamma + (world_size - 1) * kappa,
        "halving-doubling": 2 * steps * alpha + 2 * part * n * beta + part * n * gamma + steps * kappa,
    }
    for name, seconds in formulas.items():
        schedule = schedules.ALLREDUCE[name](world_size)
        assert predict(schedule, n, SWITCHED) == pytest.approx(op_costs.LAUNCH_S + seconds, rel=1e-9)


def simulated(machine, world_size, n, algorithm, **options):
    """Return the ledger's seconds on simulated GPUs."""
    simgpu.enable(machine=machine)
    data = [torch.ones(n, device=f"sim:{rank}") for rank in range(world_size)]
    devices.synchronize(*(tensor.device for tensor in data))
    seconds = allreduce(data, algorithm, **options).seconds
    del data
    simgpu.disable()
    return seconds


@each_algorithm
@pytest.mark.parametrize(("machine", "world_size"), [("8xH200", 2), ("8xH200", 3), ("8xH200", 8), ("DGX-1-V100", 6)])
def test_prediction_agrees_with_the_simulated_clock(algorithm, machine, world_size):
    """To 2 %, and always: the clock is not later than the model, whose steps wait for all ranks."""
    for n in (1, 10_007, 300_007):
        clock = simulated(machines.MACHINES[machine], world_size, n, algorithm)
        model = predict(schedules.ALLREDUCE[algorithm](world_size), n, machines.MACHINES[machine])
        assert clock == pytest.approx(model, rel=0.02)
        assert clock <= model * 1.001


@pytest.mark.parametrize(
    ("machine", "world_size"),
    [
        *(("8xH200", world_size) for world_size in range(4, 9)),
        ("DGX-1-V100", 4),
        ("DGX-1-V100", 5),
    ],
)
def test_crossover_is_where_losing_turns_into_winning(machine, world_size):
    machine = machines.MACHINES[machine]
    tree, ring = schedules.allreduce_tree(world_size), schedules.allreduce_ring(world_size)
    n = cost_model.crossover(tree, ring, machine)
    assert predict(ring, n, machine) <= predict(tree, n, machine)
    assert predict(ring, n - 1, machine) > predict(tree, n - 1, machine)


def test_no_crossover():
    naive, ring = schedules.allreduce_naive(8), schedules.allreduce_ring(8)
    with pytest.raises(ValueError, match="naive is slower"):
        cost_model.crossover(ring, naive, SWITCHED, most=1000)
    assert cost_model.crossover(naive, ring, SWITCHED) == 1  # as many steps, shorter messages


def test_the_ring_comes_close_to_the_bound_and_its_bus_bandwidth_to_the_link():
    (hop,) = SWITCHED.route(0, 1)
    reached, nbytes = hop.link.bytes_per_s_per_direction * op_costs.LINK_SHARE, 4 * 10**9
    seconds = predict(schedules.allreduce_ring(8), 10**9, SWITCHED)
    assert 1 < seconds / cost_model.bound_seconds(nbytes, 8, reached) < 1.2
    assert cost_model.busbw(nbytes, seconds, 8) == pytest.approx(1.75 * nbytes / seconds)
    assert 0.8 * reached < cost_model.busbw(nbytes, seconds, 8) < reached


def test_messages_that_share_a_wire_add_up():
    sends = schedules.Send(0, 1, 0, 1, "copy"), schedules.Send(0, 2, 0, 1, "copy")
    (one,), (both,) = (
        cost_model.step_seconds(schedules.Schedule("s", 3, 1, (step,)), 10**6, SWITCHED) for step in (sends[:1], sends)
    )
    assert both == pytest.approx(2 * one)


def test_constants_are_those_that_predictions_are_made_of():
    rows = cost_model.constants(SWITCHED)
    alpha, beta, gamma = alpha_beta_gamma(SWITCHED)
    (link,) = {row[2] for row in rows if "NVLink" in row[2]}
    assert [row[1] for row in rows if row[2] == link] == [f"{alpha * 1e6:.1f} µs", f"{4 / beta / 1e9:.1f} GB/s"]
    assert ["γ", f"{4 / gamma / 1e9:.0f} GB/s", "adding on H200-SXM5-141GB"] in rows
    assert ["κ", f"{op_costs.KERNEL_S * 1e6:.1f} µs", "a kernel"] in rows
    two = cost_model.constants(machines.cluster(SWITCHED, 2))
    assert {row[2] for row in two if row[0] == "α"} == {"PCIe5-x16", link, "InfiniBand-NDR"}


def test_routes_of_a_cluster():
    two = machines.cluster(SWITCHED, 2)
    assert (two.count, two.name) == (16, "2 × 8xH200")
    assert two.route(8, 9)[0].wires == ("node1 NVLink gpu0 out", "node1 NVLink gpu1 in")
    (hop,) = two.route(3, 14)
    assert hop.wires == ("node0 adapter3 out", "node1 adapter6 in")
    assert hop.link.name == "InfiniBand-NDR"
    assert two.route(15, None)[0].wires == ("node1 PCIe gpu7 out",)
    assert two.route(None, 0)[0].wires == ("node0 PCIe gpu0 in",)
    dgx = machines.cluster(machines.MACHINES["DGX-1-V100"], 2)
    assert dgx.route(1, 8)[0].wires == ("node0 adapter0 out", "node1 adapter0 in")
    assert len(dgx.route(11, 12)) == 2  # staged through node 1's host


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: predict(schedules.allreduce_ring(9), 1, SWITCHED), "9 GPUs"),
        (lambda: machines.cluster(SWITCHED, 2).route(0, 16), "0 to 15, got index 16"),
        (lambda: machines.cluster(SWITCHED, 2).route(3, 3), "twice"),
        (lambda: machines.cluster(SWITCHED, 0), "got 0"),
        (lambda: machines.cluster(machines.MACHINES["desktop-2020"], 2), "adapter"),
    ],
)
def test_what_cannot_be_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_hierarchy_on_two_nodes():
    """Every adapter carries an eighth of what a plain ring sends over its one pair of adapters."""
    two, n = machines.cluster(SWITCHED, 2), 4 * 10**6
    flat = simulated(two, 16, n, "ring")
    nested = simulated(two, 16, n, "hierarchical", per_node=8)
    assert nested < flat / 2
    assert flat == pytest.approx(predict(schedules.allreduce_ring(16), n, two), rel=0.02)
    assert nested == pytest.approx(predict(schedules.allreduce_hierarchical(16, 8), n, two), rel=0.02)
