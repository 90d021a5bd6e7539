"""Data parallelism by hand against torch on one device, with inputs that betray misrouting and double counting."""

import pytest
import torch
from torch.nn import functional as F

from d2lmini.data_parallel import by_hand
from d2lmini.data_parallel.by_hand import evaluate_accuracy_gpu, get_params, split_batch
from d2lmini.models.lenet import LeNet, lenet, lenet_params

CPU = torch.device("cpu")


def batch(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, 28, 28, generator=generator), torch.randint(10, (n,), generator=generator)


def test_replicas_never_alias():
    params = lenet_params()
    a, b = get_params(params, CPU), get_params(params, CPU)
    for p, q, r in zip(params, a, b, strict=True):
        assert torch.equal(p, q)
        assert (q.is_leaf, q.requires_grad, p.requires_grad) == (True, True, False)
        assert len({p.data_ptr(), q.data_ptr(), r.data_ptr()}) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_allreduce_adds_each_contribution_once_in_place(count, shape):
    places = torch.ones(shape, dtype=torch.int64).cumsum(0) if shape else torch.tensor(1)
    data = [places * 10**rank for rank in range(count)]
    by_hand.allreduce([*data])  # a list of its own: what is put into it is not seen here
    for tensor in data:  # each digit counts the contributions of one rank
        assert torch.equal(tensor, places * int("1" * count))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 2), (5, 2), (7, 3), (8, 8), (10, 4)])
def test_split_batch_cuts_in_order_and_evenly(n, k):
    X, y = torch.arange(6.0 * n).reshape(n, 6), torch.arange(n)
    X_shards, y_shards = split_batch(X, y, [CPU] * k)
    assert torch.equal(torch.cat(X_shards), X)
    assert torch.equal(torch.cat(y_shards), y)
    assert [len(s) for s in y_shards] == [len(s) for s in X_shards] == [n // k + (i < n % k) for i in range(k)]


@pytest.mark.parametrize(("labels", "devices", "says"), [(2, 3, "3 examples"), (1, 1, "2 labels")])
def test_split_batch_refuses_what_it_cannot_split(labels, devices, says):
    X, y = batch(2)
    with pytest.raises(ValueError, match=says):
        split_batch(X, y[:labels], [CPU] * devices)


def test_sgd_is_torchs():
    ours = get_params([torch.arange(3.0), torch.ones(2, 2)], CPU)
    theirs = get_params(ours, CPU)
    for p, q in zip(ours, theirs, strict=True):
        p.grad = p.detach() + 1
        q.grad = p.grad / 4
    by_hand.sgd(ours, lr=0.3, batch_size=4)
    torch.optim.SGD(theirs, lr=0.3).step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q)
        assert not p.grad.any()


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_a_step_on_k_replicas_is_the_step_of_one(k):
    X, y = batch(10)
    module = LeNet()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2)
    replicas = [get_params(lenet_params(), CPU) for _ in range(k)]
    for step in range(2):
        by_hand.train_batch(X + step, y, replicas, [CPU] * k, lr=0.2)
        optimizer.zero_grad()
        F.cross_entropy(module(X + step), y).backward()
        optimizer.step()
    for i, p in enumerate(module.parameters()):
        expected = p.detach().T if i in (4, 6) else p.detach()
        torch.testing.assert_close(replicas[0][i].detach(), expected, rtol=1e-4, atol=1e-6)
        assert all(torch.equal(replicas[0][i], replica[i]) for replica in replicas)  # to the last bit


def test_accuracy_counts_and_puts_a_module_in_evaluation_mode():
    X, y = torch.eye(4), torch.tensor([0, 1, 2, 0])
    net = torch.nn.Sequential(torch.nn.Dropout(0.999), torch.nn.Flatten())
    net.weight = torch.nn.Parameter(torch.zeros(1))
    for fn, device in ((lambda X: X, None), (lambda X: X, CPU), (net, None)):
        assert evaluate_accuracy_gpu(fn, [(X[:1], y[:1]), (X[1:], y[1:])], device) == 0.75
    with pytest.raises(ValueError, match="at least one example"):
        evaluate_accuracy_gpu(net, [])


@pytest.mark.parametrize("k", [1, 2])
def test_train_learns_and_reports_every_epoch(k):
    X, y = batch(24)
    data, seen, params = [(X[:12], y[:12]), (X[12:], y[12:])], [], lenet_params()
    replica, accuracies, timer = by_hand.train(
        params, [CPU] * k, data, data, 12, lr=0.5, on_epoch=lambda *a: seen.append(a)
    )
    assert seen == list(enumerate(accuracies, start=1))
    assert len(accuracies) == len(timer.times) == 12
    loss = [F.cross_entropy(lenet(X, p), y).item() for p in (params, replica)]
    assert loss[1] < loss[0]
    assert torch.equal(params[0], lenet_params()[0])  # the given parameters are left alone
