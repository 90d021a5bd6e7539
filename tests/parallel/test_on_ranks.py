"""Each kind of parallelism gives the numbers of one device, and moves the bytes of its formula."""

import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import programs

import simgpu
from d2lmini.parallel import CopyToRanks, RowParallel, Unit, column_parallel, gpipe, one_f_one_b, shard

P = 4 * sum(p.numel() for p in programs.model().parameters())
ACTIVATION = programs.BATCH * programs.LENGTH * programs.WIDTH * 4
alone = cache(programs.alone)


def ran(run, ranks, *args):
    """Return the ranks' results, and the bytes that each collective moved in all."""
    simgpu.enable(ranks, gpu="V100-SXM2-16GB")
    with simgpu.trace() as trace:
        results = simgpu.spawn(run, args)
    sent = defaultdict(int)
    for span in trace.spans:
        if span.kind == "communication":
            sent[span.name.split()[0]] += span.nbytes
    return results, sent


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ranks", [1, 4])
def test_layers_cut_over_ranks(ranks):
    losses, parameters = alone()
    results, sent = ran(programs.tensor_parallel, ranks)
    for rank, (found, mine) in enumerate(results):
        close(found, losses)
        assert mine.keys() == parameters.keys()
        for name, p in parameters.items():
            close(mine[name], programs.cut(name, p, rank, ranks))
    assert sent["all_reduce"] == programs.STEPS * 4 * 4 * 2 * (ranks - 1) * ACTIVATION
    assert set(sent) <= {"all_reduce"}


@pytest.mark.parametrize("ranks", [2, 4])
def test_tokens_split_between_the_split_layers(ranks):
    """Each norm's gradient is a term of a sum; other parameters have their part of it."""
    results, sent = ran(programs.tokens_split, ranks)
    whole, gradients = programs.one_layer()
    close(torch.cat([mine for mine, _ in results]), whole)
    for name, gradient in gradients.items():
        if "norm" in name:
            close(sum(mine[name] for _, mine in results), gradient)
        else:
            for rank, (_, mine) in enumerate(results):
                close(mine[name], programs.cut(name, gradient, rank, ranks))
    # forward and backward, around attention and around the feed-forward network
    assert sent["all_gather"] == sent["reduce_scatter"] == 4 * (ranks - 1) * 2 * ACTIVATION  # of 8 bytes


@pytest.mark.parametrize(("schedule", "ranks", "batches"), [(gpipe, 2, 4), (one_f_one_b, 4, 4), (one_f_one_b, 1, 1)])
def test_a_pipeline(schedule, ranks, batches):
    losses, parameters = alone()
    results, sent = ran(programs.pipelined, ranks, schedule, batches)
    close(results[-1][0], losses)
    for number, (_, mine, (first, end)) in enumerate(results):
        names = [f"layers.{i}." for i in range(first, end)]
        names += ["words."] * (number == 0) + ["norm.", "scores."] * (number == ranks - 1)
        wanted = [p for name, p in parameters.items() if any(name.startswith(start) for start in names)]
        assert len(wanted) == len(mine)
        assert all(any(w.shape == p.shape and torch.allclose(w, p, atol=1e-5) for w in wanted) for p in mine)
    assert sent["send"] == programs.STEPS * 2 * (ranks - 1) * ACTIVATION


@pytest.mark.parametrize(("stage", "ranks"), [(1, 4), (2, 2), (3, 4), (3, 1)])
def test_replicas_that_share_out_what_they_keep(stage, ranks):
    losses, parameters = alone()
    results, sent = ran(programs.zero, ranks, stage)
    close([sum(step) / ranks for step in zip(*(found for found, _ in results))], losses)
    for _, mine in results:
        close(mine, parameters)
    gathers = programs.STEPS * (2 if stage == 3 else 1) + 1  # and once to look at the result
    assert sent["reduce_scatter"] == programs.STEPS * (ranks - 1) * P
    assert sent["all_gather"] == gathers * (ranks - 1) * P


@pytest.mark.parametrize(
    ("run", "options", "word"),
    [
        (programs.zero, (2, 4), "stage"),
        (programs.tensor_parallel, (3,), "divide"),
    ],
    ids=["a stage that does not exist", "heads that ranks do not divide"],
)
def test_what_cannot_be_cut(run, options, word):
    with pytest.raises(simgpu.RankError, match=word):
        ran(run, *options)


def uneven(rank):
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2).to("sim")  # 8 numbers on 3 ranks
    whole = torch.nn.utils.parameters_to_vector(layer.parameters()).cpu()
    unit = Unit(layer)
    unit.shard.data += 1
    unit.gather()
    return whole.detach(), torch.nn.utils.parameters_to_vector(layer.parameters()).detach().cpu(), len(unit.shard)


def test_parameters_that_ranks_do_not_divide():
    for whole, found, mine in ran(uneven, 3)[0]:
        close(found, whole + 1)
        assert mine == 3


def two_backwards(rank, stage):
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(3, 2).to("sim"), torch.arange(6.0).view(2, 3) + rank
    (unit,) = shard([layer], stage)
    for part in x:
        layer(part.to("sim")).square().sum().backward()
    if stage == 1:
        unit.reduce()
    return unit.shard.grad.cpu()


@pytest.mark.parametrize("stage", [2, 3])
def test_gradients_of_several_backwards_add_up(stage):
    for found, wanted in zip(ran(two_backwards, 2, stage)[0], ran(two_backwards, 2, 1)[0]):
        close(found, wanted)


def held(rank, stage):
    layer = torch.nn.Linear(64, 64).to("sim")
    (unit,) = shard([layer], stage)
    sizes = [unit.whole.untyped_storage().nbytes()]
    y = layer(torch.ones(1, 64, device="sim"))
    sizes.append(unit.whole.untyped_storage().nbytes())
    y.sum().backward()
    return [*sizes, unit.whole.untyped_storage().nbytes()]


def test_stage_3_holds_parameters_only_while_they_are_used():
    assert ran(held, 2, 3)[0] == [[0, 0, 0]] * 2
    assert ran(held, 2, 2)[0] == [[4 * 65 * 64] * 3] * 2


def biased(rank):
    torch.manual_seed(0)
    a, b, x = torch.nn.Linear(6, 8), torch.nn.Linear(8, 4), torch.randn(5, 6)
    wanted = torch.autograd.grad(b(a(x).relu()).square().sum(), [a.bias, b.bias])
    a, b, x = column_parallel(a).to("sim"), RowParallel(b).to("sim"), x.to("sim")
    b(a(CopyToRanks.apply(x, None)).relu()).square().sum().backward()
    return [w.chunk(2)[rank] if w.shape != b.bias.shape else w for w in wanted], [a.bias.grad.cpu(), b.bias.grad.cpu()]


def test_a_bias_counts_once():
    for wanted, found in ran(biased, 2)[0]:
        close(found, wanted)
