"""Compressed gradients: what a message holds, what it costs, and that nothing is lost for good."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import simgpu
from d2lmini.data_parallel import Compressor, Signs, TopK, compressed_mean
from d2lmini.data_parallel.compression import pack_bits, unpack_bits


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 1001])
def test_bits_come_back_from_an_eighth_of_the_bytes(n):
    bits = torch.rand(n, generator=torch.Generator().manual_seed(n)) < 0.5
    packed = pack_bits(bits)
    numbers = [sum(int(bit) << place for place, bit in enumerate(eight)) for eight in bits.split(8) if n]
    assert (packed.dtype, packed.tolist()) == (torch.uint8, numbers)
    assert unpack_bits(packed, n).tolist() == bits.int().tolist()


@pytest.mark.parametrize(("share", "k"), [(0, 1), (0.01, 1), (0.3, 3), (0.7, 7), (1, 10)])
def test_top_k_sends_the_largest(share, k):
    x = torch.tensor([3.0, -10.0, 0.0, 1.0, 7.0, -2.0, 5.0, -6.0, 4.0, 9.0])
    values, places = TopK(share).encode(x)
    assert (len(values), len(places), places.dtype) == (k, k, torch.int32)
    kept = x.abs() >= x.abs().sort(descending=True).values[k - 1]
    assert torch.equal(TopK(share).decode((values, places), len(x)), x * kept)


@pytest.mark.parametrize("n", [1, 8, 13])
def test_signs_carry_the_mean_magnitude(n):
    x = torch.linspace(-1, 3, n) + 0.01
    sent = Signs().decode(Signs().encode(x), n)
    assert torch.equal(sent.sign(), x.sign())
    torch.testing.assert_close(sent.abs(), x.abs().mean().expand(n))


def step(rank, codec, feedback, steps, buckets):
    """Return the gradients of `steps` steps, and what is left unsent; a rank's gradients are its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)).to(f"sim:{rank}")
    wrapped, state = DistributedDataParallel(model, bucket_cap_mb=buckets), Compressor(codec, feedback)
    wrapped.register_comm_hook(state, compressed_mean)
    found = []
    for number in range(steps):
        model.zero_grad()
        x = torch.rand(4, 6, generator=torch.Generator().manual_seed(100 * rank + number)).to(f"sim:{rank}")
        wrapped(x).square().sum().backward()
        found.append([p.grad.cpu().clone() for p in model.parameters()])
    return found, [state.unsent[p].cpu().view_as(p) for p in model.parameters()] if feedback else None


@pytest.fixture
def three_gpus():
    simgpu.enable(3)


@pytest.mark.parametrize("buckets", [25, 0.00005])
@pytest.mark.parametrize("codec", [TopK(0.1), Signs()], ids=["top-k", "signs"])
def test_with_feedback_nothing_is_lost(three_gpus, codec, buckets):
    """What was applied over three steps and the mean of what is left are the mean of the gradients."""
    exact = simgpu.spawn(step, (TopK(1), False, 3, buckets))
    ranks = simgpu.spawn(step, (codec, True, 3, buckets))
    sums = ([sum(parts) for parts in zip(*found[0][0])] for found in (exact, ranks))
    for whole, applied, *left in zip(*sums, *(left for _, left in ranks), strict=True):
        torch.testing.assert_close(applied + sum(left) / 3, whole)
        assert not torch.allclose(applied, whole, rtol=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(ranks[0][0][2], ranks[2][0][2]))


def test_all_of_a_bucket_is_ddps_mean(three_gpus):
    (gradients, _), *_ = simgpu.spawn(step, (TopK(1), False, 1, 25))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    for rank in range(3):
        x = torch.rand(4, 6, generator=torch.Generator().manual_seed(100 * rank))
        (model(x).square().sum() / 3).backward()
    for ours, p in zip(gradients[0], model.parameters(), strict=True):
        torch.testing.assert_close(ours, p.grad)


@pytest.mark.parametrize(("codec", "message"), [(TopK(0.1), 8 * 5), (Signs(), 7 + 4)], ids=["top-k", "signs"])
def test_each_rank_sends_a_message_to_all_others(three_gpus, codec, message):
    sent = []
    for steps in (1, 2):  # DDP gathers too, when it is made
        with simgpu.trace() as trace:
            simgpu.spawn(step, (codec, True, steps, 25))
        sent.append(
            sum(
                span.nbytes
                for span in trace.spans
                if span.kind == "communication" and span.place == "gpu0" and span.name.startswith("all_gather")
            )
        )
    assert sent[1] - sent[0] == 2 * message
