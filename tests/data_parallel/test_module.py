"""`DataParallel` by hand against torch's own and against one device; float64, to see mistakes alone."""

import copy

import pytest
import torch
from torch import nn

import simgpu
from d2lmini.data_parallel.module import DataParallel, gather, replicate, split
from d2lmini.data_parallel.sync_batch_norm import SyncBatchNorm

CPU = torch.device("cpu")


@pytest.fixture
def gpus():
    simgpu.enable(4, accelerator=True)  # torch's own DataParallel means these
    return [torch.device("sim", i) for i in range(4)]


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 4)).double()


def images(n):
    return torch.rand(n, 2, 6, 6, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def gradients(module, X):
    """Return the scores and the parameters' gradients of a loss in which every example counts differently."""
    module.zero_grad()
    Y = module(X)
    weights = torch.arange(1.0, 1 + Y.numel(), dtype=Y.dtype, device=Y.device).view_as(Y)
    (Y * weights).sum().backward()
    return [Y.detach().cpu(), *(p.grad.cpu() for p in module.parameters())]


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("ids", [[0], [3, 1], [2, 0, 3], None], ids=str)
def test_it_is_torchs_and_that_of_one_device(gpus, n, ids):
    X, devices = images(n), [gpus[i] for i in ids or range(4)]
    ours = gradients(DataParallel(small_net(), devices), X.to(devices[0]))
    assert_same(ours, gradients(small_net(), X))
    torchs = nn.DataParallel(small_net().to(devices[0]), ids)
    for there in ("cpu", devices[0]):
        assert_same(ours, gradients(torchs, X.to(there)))


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two real GPUs")
@pytest.mark.parametrize("n", [1, 5, 8])
def test_it_is_torchs_on_real_gpus(n):
    simgpu.enable(2, accelerator=False)
    devices, X = [torch.device("cuda", i) for i in range(2)], images(n).to("cuda:0")
    theirs = gradients(nn.DataParallel(small_net().to("cuda:0"), device_ids=[0, 1]), X)
    assert_same(gradients(DataParallel(small_net(), devices), X), theirs)


@pytest.mark.parametrize(
    ("n", "k", "sizes"), [(50, 2, [25, 25]), (10, 4, [3, 3, 2, 2]), (5, 4, [2, 1, 1, 1]), (2, 4, [1, 1]), (0, 2, [0])]
)
def test_what_forward_sees(gpus, n, k, sizes):
    seen = []

    class Watched(nn.Linear):
        def forward(self, X):
            assert X.device == self.weight.device
            seen.append((X.device.index, X[:, 0].tolist()))
            return super().forward(X)

    X = torch.arange(10.0 * n).reshape(n, 10)
    Y = DataParallel(Watched(10, 5), gpus[:k])(X.to(gpus[0]))
    assert (Y.device, list(Y.shape)) == (gpus[0], [n, 5])
    assert sorted(seen) == [(i, rows[:, 0].tolist()) for i, rows in enumerate(X.split(sizes))]


def test_nests_are_split_and_gathered(gpus):
    class Nest(nn.Module):
        def forward(self, pair, factor, *, named):
            X, y = pair
            return {"scaled": X * factor, "both": (X.sum(1) + y, named["z"].sum())}

    X, y, z = torch.arange(10.0).reshape(5, 2), torch.arange(5.0), torch.ones(5)
    out = DataParallel(Nest(), gpus[:2])((X, y), 3.0, named={"z": z, "note": "kept"})
    assert out["scaled"].cpu().equal(3 * X)
    sums, numbers = out["both"]
    assert (type(out["both"]), sums.tolist(), numbers.tolist()) == (tuple, (X.sum(1) + y).tolist(), [3, 2])
    (first,) = split([torch.tensor(1.0), None], gpus)  # nothing to split: one replica
    assert first[0].device == gpus[0]


@pytest.mark.parametrize(
    ("call", "kind", "word"),
    [
        (lambda gpus: split((torch.ones(3), torch.ones(4)), gpus), ValueError, "one length"),
        (lambda gpus: gather(["a", "b"], gpus[0]), TypeError, "str"),
        (lambda gpus: DataParallel(nn.Flatten(), []), ValueError, "device"),
    ],
)
def test_bad_input_is_named(gpus, call, kind, word):
    with pytest.raises(kind, match=word):
        call(gpus)


def test_replicas_share_nothing_but_what_autograd_joins():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    net.append(net[0])  # one module twice
    replicas = replicate(net, [CPU] * 3)
    for tensors in zip(*([*r.parameters(), *r.buffers()] for r in [net, *replicas]), strict=True):
        assert tensors[0] is tensors[1]
        assert len({t.data_ptr() for t in tensors}) == 3
    assert all(r[0] is r[2] and r is not net for r in replicas)


def test_buffers_of_the_first_replica_last_and_modes_reach_the_others(gpus):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, X):
            self.calls += len(X)
            modes.append(
                (torch.sim.current_device(), self.training, torch.is_grad_enabled(), torch.is_autocast_enabled("sim"))
            )
            return X

    modes, module = [], DataParallel(Counts(), gpus[:2]).eval()
    with torch.no_grad(), torch.autocast("sim", torch.bfloat16):
        module(torch.ones(5, 1))
    assert module.module.calls.item() == 3
    assert sorted(modes) == [(0, False, False, True), (1, False, False, True)]


def test_batch_normalisation_over_all_devices_is_that_of_one(gpus):
    norm = nn.BatchNorm2d(2).double()
    ours = DataParallel(SyncBatchNorm.convert(copy.deepcopy(norm)), gpus[:3])
    assert_same(gradients(ours, images(7).to(gpus[0])), gradients(norm, images(7)))
