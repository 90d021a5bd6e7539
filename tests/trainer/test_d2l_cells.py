"""Programs of the shape of d2l's sections on GPUs run with ``import d2lmini as d2l`` on simulated GPUs, as CUDA's."""

import pytest
import torch
from torch import nn

import d2lmini as d2l
import simgpu


@pytest.fixture(autouse=True)
def _cuda():
    simgpu.enable(2, gpu="V100-SXM2-16GB")
    with simgpu.as_cuda():
        yield
    simgpu.disable()


def test_devices_and_copies():
    assert (d2l.num_gpus(), d2l.try_gpu(10)) == (2, torch.device("cpu"))
    assert d2l.try_all_gpus() == [d2l.gpu(0), d2l.gpu(1)] == [torch.device("cuda:0"), torch.device("cuda:1")]
    x, y = torch.ones(2, 3, device=d2l.try_gpu()), torch.rand(2, 3, device=d2l.try_gpu(1))
    z = x.cuda(1)
    assert (y + z).device == torch.device("cuda:1")
    assert z.cuda(1) is z
    net = nn.Sequential(nn.LazyLinear(1)).to(device=d2l.try_gpu())
    assert net(x).device == net[0].weight.data.device == d2l.gpu(0)


def test_a_class_that_grows_by_cells():
    class Runner(d2l.HyperParameters):
        pass

    @d2l.add_to_class(Runner)
    def __init__(self, max_epochs, num_gpus=0, clip=0):
        self.save_hyperparameters(ignore=["clip"])
        self.gpus = [d2l.gpu(i) for i in range(min(num_gpus, d2l.num_gpus()))]

    @d2l.add_to_class(Runner)
    def prepare_batch(self, batch):
        return [d2l.to(a, self.gpus[0]) for a in batch] if self.gpus else batch

    runner = Runner(3, num_gpus=4)
    assert (runner.max_epochs, runner.num_gpus, runner.gpus) == (3, 4, d2l.try_all_gpus())
    assert not hasattr(runner, "clip")
    assert runner.prepare_batch([torch.ones(1)])[0].is_cuda
    assert callable(d2l.Trainer.save_hyperparameters)


def test_two_gpus_at_once_take_less_than_one_after_the_other(capsys):
    def run(x):
        return [x.mm(x) for _ in range(3)]

    first, second = (torch.rand(1000, 1000, device=device) for device in d2l.try_all_gpus())
    run(first), run(second)
    torch.cuda.synchronize(first.device)
    torch.cuda.synchronize(second.device)
    with d2l.Benchmark("one"):
        run(first)
        torch.cuda.synchronize(first.device)
    with d2l.Benchmark("both"):
        run(first), run(second)
        torch.cuda.synchronize()
    with d2l.Benchmark("copy"):
        [y.to("cpu", non_blocking=True) for y in run(first)]
        torch.cuda.synchronize()
    seconds = {
        name: float(time.removesuffix(" sec"))
        for name, time in (line.split(": ") for line in capsys.readouterr().out.splitlines())
    }
    assert 0 < seconds["one"] <= seconds["both"] < 2 * seconds["one"]  # on the simulated clock, which does not vary
    assert seconds["copy"] > seconds["one"]


@pytest.mark.parametrize("given", [1, 2])
def test_residual_blocks_train_in_data_parallel(given):
    def block(inputs, outputs, **how):
        return d2l.Residual(*(inputs, outputs)[2 - given :], **how)

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        block(4, 4),
        block(4, 8, use_1x1conv=True, strides=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )
    x, y = torch.rand(8, 1, 9, 9), torch.arange(8)
    assert net[:5](x).shape == (8, 8, 5, 5)
    devices, timer = d2l.try_all_gpus(), d2l.Timer()
    net = nn.DataParallel(net.to(devices[0]), device_ids=devices)
    optimizer, loss, losses = torch.optim.SGD(net.parameters(), lr=0.1), nn.CrossEntropyLoss(), []
    for _ in range(4):
        optimizer.zero_grad()
        batch_loss = loss(net(x.to(devices[0])), y.to(devices[0]))
        batch_loss.backward()
        optimizer.step()
        losses.append(batch_loss.item())
    assert losses[-1] < losses[0]
    assert timer.stop() > 0
    assert 0 <= d2l.evaluate_accuracy_gpu(net, [(x, y)]) <= 1


def test_residual_is_the_sum_of_two_convolutions_and_its_input():
    torch.manual_seed(0)
    block = d2l.Residual(3, 3).eval()
    x = torch.rand(2, 3, 6, 6)
    body = nn.Sequential(block.conv1, block.bn1, nn.ReLU(), block.conv2, block.bn2)
    torch.testing.assert_close(block(x), (body(x) + x).relu())
    with pytest.raises(TypeError, match="channels"):
        d2l.Residual()
