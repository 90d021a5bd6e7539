"""What an operation needs and costs is read from a record at later calls: the same as when it was found."""

import pytest
import torch
from torch.nn import functional as F

import simgpu

MIB = 2**20
CALLS = [
    lambda x: x + x,
    lambda x: torch.cat([x, x]),
    lambda x: F.pad(x, (1, MIB)),
    lambda x: x * 0.5,
    lambda x: x[: 2**18].repeat(4),
    lambda x: x.sort(),
    lambda x: torch._foreach_add([x], [x])[0],
]


@pytest.fixture
def gpu():
    simgpu.enable(1, memory=64 * MIB)
    return torch.device("sim:0")


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_a_call_that_ran_before_is_refused_when_there_is_no_room_any_more(gpu, call):
    x = torch.arange(MIB, dtype=torch.uint8, device=gpu)
    result = call(x)
    needs = torch.sim.memory_allocated() - MIB
    del result
    filler = torch.empty(63 * MIB - needs, dtype=torch.uint8, device=gpu)
    assert torch.sim.mem_get_info()[0] == needs
    again = call(x)
    del again
    more = torch.empty(1, device=gpu)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        call(x)
    assert torch.sim.memory_allocated() == 64 * MIB - needs + 512
    del filler, more


def test_it_is_refused_before_it_runs(gpu):
    chances = torch.full((MIB,), 0.5, device=gpu)
    torch.bernoulli(chances)
    filler, state = torch.empty(60 * MIB - 512, dtype=torch.uint8, device=gpu), torch.sim.get_rng_state(gpu)
    small = torch.empty(1, device=gpu)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.bernoulli(chances)
    assert torch.equal(torch.sim.get_rng_state(gpu), state)
    del filler, small


def spent(function):
    """Return name, device's seconds and bytes of every operation that a function queues."""
    with simgpu.trace() as trace:
        function()
    return [(span.name, span.seconds, span.nbytes) for span in trace.spans if span.kind == "operation"]


def test_what_decides_a_results_shape_and_type_decides_the_cost(gpu):
    x, ints = torch.ones(1, 8, 64, 64, device=gpu), torch.ones(MIB, dtype=torch.int16, device=gpu)
    w, out = torch.ones(8, 8, 3, 3, device=gpu), torch.ones(4, device=gpu)
    pairs = [
        (lambda: F.conv2d(x, w), lambda: F.conv2d(x, w, stride=2)),
        (lambda: x.sum(0), lambda: x.sum(1)),
        (lambda: ints * 2, lambda: ints * 2.0),
        (lambda: ints.sum(), lambda: ints.sum(dtype=torch.int32)),
        (lambda: torch.cat([x, x]), lambda: torch.cat([x, x, x])),
        (lambda: out.repeat(3), lambda: out.repeat(1000)),
        (lambda: x[x > 2], lambda: x[x > 0]),
    ]
    for one, other in pairs:
        first, second = spent(one), spent(other)
        assert [cost[2] for cost in first] != [cost[2] for cost in second]
        assert (spent(one), spent(other)) == (first, second)


def test_a_new_clock_prices_anew():
    def product(gpu):
        simgpu.enable(1, gpu=gpu)
        x = torch.ones(512, 512, device="sim:0")
        return spent(lambda: x @ x)

    slow, fast, again = map(product, ("GTX 580", "V100-SXM2-16GB", "GTX 580"))
    simgpu.disable()
    assert again == slow
    assert fast[0][1] < slow[0][1]
