"""The checks on parallelism accept right answers in unusual form, and say what is wrong with others."""

import heapq

import numpy as np
import pytest
import torch

from d2lmini import checks


def rows(heads, width, ranks, rank):
    if heads % ranks:
        raise ValueError("heads")
    return np.arange(3 * heads * width).reshape(3, ranks, -1)[:, rank].ravel()


@pytest.mark.parametrize("turned", [np.asarray, torch.tensor, tuple, lambda r: list(map(np.int64, r)),
                                    lambda r: [float(n) for n in r]])  # fmt: skip
def test_rows_in_any_form(turned, capsys):
    assert checks.qkv_rows(lambda *given: turned(rows(*given)))


def test_rows_of_the_wrong_kind_are_counted(capsys):
    verdict = checks.qkv_rows(lambda h, w, n, r: list(range(r * 3 * h * w // n, (r + 1) * 3 * h * w // n)))
    assert "8 rows of q, 4 of k, 0 of v" in verdict.sentence


@pytest.mark.parametrize(("wrong", "told"), [(str, "str"), (lambda r: [str(n) for n in r], "list"), (len, "int")])
def test_what_are_no_rows_is_told_with_its_type(wrong, told, capsys):
    assert checks.qkv_rows(lambda *given: wrong(list(rows(*given)))).sentence.endswith(f"({told})")


def loss(parts, targets):
    """By logarithms of the parts' sums, which are safe by themselves, and word by word for the targets."""
    sums = torch.stack([part.logsumexp(1) for part in parts], 1).logsumexp(1)
    starts = np.cumsum([0] + [part.shape[1] for part in parts])
    places = [(np.searchsorted(starts, int(t), "right") - 1, int(t)) for t in targets]
    return (sums - torch.stack([parts[p][i, t - starts[p]] for i, (p, t) in enumerate(places)])).mean()


@pytest.mark.parametrize("turned", [lambda x: x, float, np.float64, lambda x: x.numpy()])
def test_a_loss_from_logarithms_of_sums(turned, capsys):
    assert checks.split_loss(lambda *given: turned(loss(*given)))


def test_an_overflow_is_named(capsys):
    def naive(parts, targets):
        return sum(part.exp().sum(1) for part in parts).log().mean() - torch.cat(parts, 1).gather(
            1, targets[:, None]).mean()  # fmt: skip

    assert "as many as all ranks' scores" in checks.split_loss(naive).sentence


def pieces(sizes, ranks, rank):
    owner = np.repeat(np.arange(len(sizes)), sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    each = -(-len(owner) // ranks)
    mine = slice(rank * each, (rank + 1) * each)
    found = [(i, place[mine][owner[mine] == i]) for i in np.unique(owner[mine])]
    return [(i, places[0], places[-1] + 1) for i, places in found]


@pytest.mark.parametrize("turned", [list, tuple, lambda p: [list(piece) for piece in p],
                                    lambda p: np.array(p).reshape(-1, 3)])  # fmt: skip
def test_pieces_in_any_form(turned, capsys):
    assert checks.shard_pieces(lambda *given: turned(pieces(*given)))


def seconds(orders, forward, backward):
    """By events: each message wakes the stage that waits for it."""
    last, cost, done = len(orders) - 1, {"F": forward, "B": backward}, {}
    events, place = [(0, stage) for stage in range(len(orders))], [0] * len(orders)
    end = 0
    while events:
        now, stage = heapq.heappop(events)
        if place[stage] == len(orders[stage]):
            continue
        way, i = orders[stage][place[stage]]
        needs = (stage - 1, "F", i) if way == "F" else (stage + 1, "B", i) if stage < last else (stage, "F", i)
        if needs[0] >= 0 and needs not in done:
            continue
        now = max(now, done.get(needs, 0), max((done[(stage, *o)] for o in orders[stage][: place[stage]]), default=0))
        done[stage, way, i] = now + cost[way]
        end, place[stage] = max(end, done[stage, way, i]), place[stage] + 1
        for other in range(len(orders)):
            heapq.heappush(events, (done[stage, way, i], other))
    if any(n < len(order) for n, order in zip(place, orders)):
        raise ValueError("stuck")
    return end


@pytest.mark.parametrize("turned", [float, np.float64, np.array, torch.tensor])
def test_seconds_by_events_in_any_form(turned, capsys):
    assert checks.pipeline_seconds(lambda *given: turned(seconds(*given)))


@pytest.mark.parametrize(("wrong", "told"), [
    (lambda o, f, b: len(o[0]) // 2 * (f + b), "without any wait"),
    (lambda o, f, b: len(o) * len(o[0]) // 2 * (f + b), "all stages compute together"),
    (lambda o, f, b: seconds(o, f, b) - b, "add what it takes"),
])  # fmt: skip
def test_usual_slips_are_named(wrong, told, capsys):
    def answer(orders, forward, backward):
        return wrong(orders, forward, backward) if len(orders) > 1 else seconds(orders, forward, backward)

    assert told in checks.pipeline_seconds(answer).sentence
