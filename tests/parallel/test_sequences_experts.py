"""Sequences and experts that are split over ranks, against one device; torch's schedules, against their formulas."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import simgpu
from d2lmini.figures import pipeline_frames
from d2lmini.parallel import (
    AllToAll,
    ExpertParallel,
    Experts,
    load_balance_loss,
    ring_attention,
    start_times,
    torch_schedules,
    ulysses_attention,
)

NUMBERS = torch.Generator().manual_seed(0)


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def spawn(ranks, program, *args):
    simgpu.enable(ranks, gpu="V100-SXM2-16GB")
    return simgpu.spawn(program, args)


# -- sequences -------------------------------------------------------------------------------------------------------

Q, K, V, WISH = (torch.randn(2, 4, 12, 3, generator=NUMBERS) for _ in range(4))


def attended(attention, inputs, wish):
    inputs = [t.clone().requires_grad_() for t in inputs]
    out = attention(*inputs)
    return [out.detach().cpu(), *(t.cpu() for t in torch.autograd.grad(out, inputs, wish))]


def on_a_rank(rank, held, ring):
    attention = (lambda q, k, v: ring_attention(q, k, v, held)) if ring else ulysses_attention
    *inputs, wish = (t[:, :, held[rank]].to("sim") for t in (Q, K, V, WISH))
    return attended(attention, inputs, wish)


@pytest.mark.parametrize(
    ("held", "ring"),
    [
        (torch.arange(12).chunk(1), True),
        (torch.arange(12).chunk(3), True),
        (torch.randperm(12, generator=NUMBERS).split([5, 5, 2])[:2], True),
        (torch.arange(12).chunk(4), False),
        (torch.arange(12).chunk(1), False),
    ],
    ids=["a ring of one", "a ring", "tokens in any order", "Ulysses", "Ulysses alone"],
)
def test_attention_to_a_sequence_that_is_split(held, ring):
    seen = torch.cat(held).sort()[0]  # positions that a rank has; some cases leave tokens out
    later = seen > seen[:, None]

    def masked(q, k, v):
        return scaled_dot_product_attention(q, k, v, attn_mask=~later)

    wanted = attended(masked, [t[:, :, seen] for t in (Q, K, V)], WISH[:, :, seen])
    results = spawn(len(held), on_a_rank, held, ring)
    order = torch.cat(held).argsort()
    for want, parts in zip(wanted, zip(*results)):
        close(torch.cat(parts, 2)[:, :, order], want)


# -- experts ---------------------------------------------------------------------------------------------------------


def uneven(rank):
    sizes = [[1, 2], [0, 3]]  # rows from a rank to each
    sent, received = sizes[rank], [row[rank] for row in sizes]
    x = (10.0 * rank + torch.arange(3.0, device="sim"))[:, None].requires_grad_()
    y = AllToAll.apply(x, sent, received)
    (y * (rank + 1)).sum().backward()
    return y.flatten().tolist(), x.grad.flatten().tolist()


def test_an_all_to_all_of_uneven_parts_and_its_gradients():
    assert spawn(2, uneven) == [([0.0], [1.0, 2.0, 2.0]), ([1.0, 2.0, 10.0, 11.0, 12.0], [2.0, 2.0, 2.0])]


def layer_of_experts():
    torch.manual_seed(0)
    layer, x = Experts(6, 8, 3), torch.randn(12, 6)
    x[:, 0] += 2
    layer.router.weight.data[1] -= torch.tensor([9.0, 0, 0, 0, 0, 0])  # expert 1 gets no token
    return layer, x


def on_its_expert(rank):
    layer, x = layer_of_experts()
    mine = x.split([7, 0, 5])[rank].to("sim").requires_grad_()
    split = ExpertParallel(layer).to("sim")
    y = split(mine)
    y.square().sum().backward()
    gradients = [mine.grad, split.router.weight.grad, *(p.grad for p in split.expert.parameters())]
    return [t.detach().cpu() for t in (y, *gradients)]


def test_experts_on_ranks_compute_what_they_do_on_one_device():
    layer, x = layer_of_experts()
    assert layer.router(x).argmax(-1).bincount(minlength=3)[1] == 0
    y = layer(x.requires_grad_())
    y.square().sum().backward()
    results = spawn(3, on_its_expert)
    close(torch.cat([found[0] for found in results]), y.detach())
    close(torch.cat([found[1] for found in results]), x.grad)
    close(sum(found[2] for found in results), layer.router.weight.grad)
    for expert, found in zip(layer.experts, results):
        for p, gradient in zip(expert.parameters(), found[3:]):
            close(gradient, torch.zeros_like(p) if p.grad is None else p.grad)


def test_the_load_balance_loss_is_between_1_and_the_number_of_experts():
    assert load_balance_loss(torch.eye(4)).item() == 1
    assert load_balance_loss(torch.eye(4)[[2, 2, 2]]).item() == 4
    assert load_balance_loss(torch.tensor([[0.6, 0.4], [0.6, 0.4]])).item() == pytest.approx(1.2)


# -- schedules -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[(2, 4), (4, 8)], ids=str)
def listed(request):
    ranks, batches = request.param
    return ranks, batches, spawn(ranks, torch_schedules.orders, batches)[0]


def test_torchs_schedules_are_as_long_as_their_formulas(listed):
    p, m, orders = listed
    assert list(orders) == list(torch_schedules.SCHEDULES)
    waits = dict.fromkeys(orders, (p - 1) / 2)  # zero-bubble: the forwards before the last rank's first, half as long
    waits |= {"GPipe": 3 * (p - 1), "1F1B": 3 * (p - 1), "interleaved 1F1B": 3 * (p - 1) / 2}
    for name, ranks in orders.items():
        seconds, idle = pipeline_frames.timing(ranks)
        assert seconds == pytest.approx(3 * m + waits[name]), name
        assert idle == pytest.approx(1 - 3 * m / seconds)
        most = pipeline_frames.most_under_way(ranks)
        assert most == m if name == "GPipe" else most <= 1.5 * p
        picture = pipeline_frames.pipeline_picture(ranks).text
        assert picture.count("M") == sum(map(len, ranks))
        assert f"{idle:.1%}" in picture
        assert f"{idle:.1%}" in pipeline_frames.pipeline_alt(ranks)


def test_a_schedule_has_every_step_once(listed):
    _, batches, orders = listed
    for name, ranks in orders.items():
        steps = [step for order in ranks for step in order]
        assert len(steps) == len(set(steps))
        stages = {stage for stage, _, _ in steps}
        for kinds in ("F", "BI", "BW"):
            assert sum(kind in kinds for _, kind, _ in steps) == len(stages) * batches, name


def test_weights_wait_for_nobody_and_a_schedule_that_is_stuck_is_told():
    unit = dict.fromkeys("FIW", 1.0)
    begin = start_times([[(0, "F", 0), (0, "I", 0), (0, "W", 0)], [(1, "F", 0), (1, "I", 0), (1, "W", 0)]], unit)
    assert [begin[step] for step in ((1, "I", 0), (0, "I", 0), (1, "W", 0), (0, "W", 0))] == [2, 3, 3, 4]
    assert math.isclose(max(begin.values()), 4)
    with pytest.raises(ValueError, match="W0"):
        start_times([[(0, "F", 0), (0, "W", 0), (0, "I", 0)]], unit)
