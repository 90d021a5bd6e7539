"""A training loop that is fed by a loader, on the simulated clock of a slow GPU: what the loop decides is the reader's.

    losses, trace = rehearse(train)        with train(loader, transform, step, device) -> losses

A batch lies in a store as bytes. A process loads it in LOAD_S, and makes numbers of it in TRANSFORM_S.
"""

import torch

import simgpu
from d2lmini.measuring.loading import SimulatedLoader
from simgpu.hardware.machines import build

BATCHES, ROWS, FEATURES = 40, 256, 512
LOAD_S, TRANSFORM_S, CORES = 0.5e-3, 0.3e-3, 8


class Store:
    """A store of batches, as bytes, and the two ways to them: `loader` and `transform`.

    Args:
        count: How many batches it holds.
    """

    def __init__(self, count: int = BATCHES) -> None:
        draw = torch.Generator().manual_seed(0)
        self.batches = list(torch.randint(256, (count, ROWS, FEATURES), generator=draw, dtype=torch.uint8))
        for i, batch in enumerate(self.batches):
            batch //= 1 + i % 3  # some are darker, so that each has a loss of its own
        self._in_worker = False

    def loader(self, num_workers=0, transform=None, pin_memory=False):
        """Return an iterable of the batches in their order, like PyTorch's DataLoader.

        Args:
            num_workers: Processes that load beside the program, and apply `transform`; 0: the program does both itself.
                More than CORES of them take turns.
            transform: A function of a batch.
            pin_memory: Whether the batches come in pinned memory.
        """
        seconds = (LOAD_S + TRANSFORM_S * (transform is not None)) * max(1, num_workers / CORES)
        for batch in SimulatedLoader(self.batches, seconds, num_workers):
            self._in_worker = True  # whose time is counted already
            batch = transform(batch) if transform else batch
            self._in_worker = False
            yield batch.pin_memory() if pin_memory else batch

    def transform(self, batch: torch.Tensor) -> torch.Tensor:
        """Return a batch of bytes as float32 from -0.5 to 0.5; on the host that takes TRANSFORM_S."""
        if batch.device.type == "cpu" and not self._in_worker:
            simgpu.clock().advance(TRANSFORM_S, "transform")
        return batch.float() / 255 - 0.5


class Step:
    """A training step of one layer.

    Args:
        device: Where it computes.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.weight = torch.eye(FEATURES, device=device)

    def __call__(self, X: torch.Tensor) -> torch.Tensor:
        """Train on a batch of floats on the device; return its loss, a tensor on the device. It does not wait."""
        out = X @ self.weight
        loss = out.square().mean()
        self.weight.sub_(X.T @ out, alpha=0.01 / len(X))
        return loss


def rehearse(train, count: int = BATCHES, wrap=None):
    """Return what ``train(loader, transform, step, device)`` returns, and the trace of its run.

    Args:
        train: The loop. It returns the losses of all batches.
        count: How many batches the store has.
        wrap: A function of the step and the trace that returns the step to hand to `train`.

    Raises:
        RuntimeError: There are no simulated GPUs.
    """
    clock = simgpu.Clock(build(torch.sim.device_count(), "GTX 580", "PCIe3-x16"), mode="compiled")
    device, store = torch.device("sim", 0), Store(count)
    with simgpu.use_clock(clock):
        step = Step(device)
        torch.sim.synchronize(device)
        with simgpu.trace() as trace:
            losses = train(store.loader, store.transform, wrap(step, trace) if wrap else step, device)
            torch.sim.synchronize(device)
    return losses, trace
