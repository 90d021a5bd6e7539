"""Tests of other people's multi-GPU code on simulated GPUs; pytest finds the plugin when the package is installed.

@pytest.mark.sim_gpus(2, gpu="A100-SXM4-80GB")      # what simgpu.enable takes
def test_step(sim_gpus):                            # a list: sim:0, sim:1
    with testing.costs() as costs:
        step(model.to(sim_gpus[0]))
    costs.check(host_waits=0, peak_bytes=2**30)

@pytest.mark.sim_ranks(4)                           # the same, but the test runs on every rank at once
def test_gradients():
    dist.all_reduce(torch.ones(4, device="sim"))

replicas   whether all ranks have equal replicas, in ranks
counting   what happened inside a with: bytes, collectives, waits, memory, time
plugin     the fixture and the two markers; loads torch only for tests that use them
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from simgpu.counting import Costs
    from simgpu.ranks.replicas import ReplicasEqual

__all__ = ["costs", "replicas_equal"]


def costs() -> "Costs":
    """Return a context manager that counts what simulated GPUs do inside.

    Returns:
        A `Costs`, whose counts and whose `check` stand ready after the ``with``.

    >>> simgpu.enable(2)
    >>> with testing.costs() as costs:
    ...     total = torch.ones(1000, device="sim:0").to("sim:1").sum().item()
    >>> costs.check(bytes_sent=4000, host_waits=1, peak_bytes=8192)
    >>> costs.check(host_waits=0)
    Traceback (most recent call last):
    AssertionError: waits of the host: expected 0, found 1 (1 × copy gpu1→host)
    """
    from simgpu.counting import Costs

    return Costs()


def replicas_equal(model: "nn.Module") -> "ReplicasEqual":
    """Raise AssertionError unless all ranks have equal parameters and buffers; all ranks call it.

    Used in a ``with`` it compares again after each step of an optimizer of the model's. Sharded tensors are left out.
    It takes no simulated time. Replicas grow apart in silence where a rank leaves out a broadcast or an all-reduce,
    draws other random numbers, or changes a parameter alone.

    Args:
        model: The rank's replica.

    >>> simgpu.enable(2)
    >>> def train(rank):
    ...     net = torch.nn.Linear(2, 1)  # other weights on each rank, as it draws them without a seed
    ...     testing.replicas_equal(net)
    >>> simgpu.spawn(train)
    Traceback (most recent call last):
    simgpu.ranks.errors.RankError: rank 0 of 2 raised AssertionError: replicas differ (in train, ...
    """
    from simgpu.ranks.replicas import ReplicasEqual

    return ReplicasEqual(model)
