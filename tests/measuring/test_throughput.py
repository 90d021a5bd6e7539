"""Throughput: sweeps and their line, training steps, threads, and Amdahl's law."""

import contextlib

import pytest
import torch

import simgpu
from d2lmini.measuring import line_fit, throughput
from d2lmini.models import LeNet
from d2lmini.timing import Measurement
from simgpu.hardware.op_costs import HOST_COSTS


@pytest.fixture
def gpu():
    simgpu.enable(1, gpu="V100-SXM2-16GB")
    yield torch.device("sim", 0)
    torch.sim.synchronize()


def lenet_step(batch, device):
    model = LeNet().to(device)
    return throughput.training_step(
        model, torch.zeros(batch, 1, 28, 28, device=device), torch.zeros(batch, dtype=torch.int64, device=device)
    )


def exact(batches, seconds):
    return line_fit.Sweep(tuple(batches), tuple(Measurement((seconds(b),) * 6) for b in batches))


def test_sweep_of_an_exact_line_gives_it_back_also_from_its_larger_batches():
    assert exact([1, 4, 8, 16, 32], lambda b: 99 if b < 8 else 1 + b).fit(least=8).half == pytest.approx(1)
    sweep = exact([1, 2, 8, 100], lambda b: 0.01 + 0.002 * b)
    line = sweep.fit()
    assert (line.alpha, 1 / line.beta, line.half) == pytest.approx((0.01, 0.002, 5))
    assert sweep.rates == pytest.approx([1 / 0.012, 2 / 0.014, 8 / 0.026, 100 / 0.21])


def test_step_of_training_is_plain_sgd_and_leaves_no_gradient_behind():
    torch.manual_seed(0)
    model, twin = (torch.nn.Linear(3, 2) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    X, y = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    step = throughput.training_step(model, X, y, lr=0.5)
    for _ in range(2):
        step()
        loss = torch.nn.functional.cross_entropy(twin(X), y)
        grads = torch.autograd.grad(loss, list(twin.parameters()))
        with torch.no_grad():
            for p, g in zip(twin.parameters(), grads):
                p -= 0.5 * g
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(p, q)


def test_seconds_of_the_host_are_those_of_its_calls(gpu):
    x = torch.empty(1, device=gpu)
    with simgpu.trace() as trace:
        for _ in range(10):
            x.add_(1)
        torch.sim.synchronize()
    assert throughput.host_seconds(trace) == pytest.approx(10 * HOST_COSTS["eager"].forward_s)
    assert trace.seconds > throughput.host_seconds(trace)


@pytest.mark.parametrize(
    ("serial", "workers", "times"),
    [
        (0, 8, 8),
        (1, 8, 1),
        (0.5, 1, 1),
        (0.1, 10, 1 / 0.19),
        (0.05, 10**9, 20),
        (-0.1, 2, None),
        (1.1, 2, None),
        (0.5, 0, None),
    ],
)
def test_amdahl(serial, workers, times):
    with pytest.raises(ValueError, match="share from 0 to 1") if times is None else contextlib.nullcontext():
        assert throughput.amdahl(serial, workers) == pytest.approx(times, rel=1e-6)


@pytest.mark.parametrize("serial", [0.0, 0.02, 0.4, 0.95])
def test_serial_fraction_is_found_again(serial):
    workers = [1, 2, 4, 8, 16]
    seconds = [3 / throughput.amdahl(serial, p) for p in workers]
    assert throughput.serial_fraction(workers, seconds) == pytest.approx(serial, abs=1e-9)
    assert throughput.serial_fraction([1, 2, 4], [1, 0.45, 0.18]) < 0  # they help each other
    with pytest.raises(ValueError, match="do not grow"):
        throughput.serial_fraction([1, 2, 4], [1, 1.5, 2])
