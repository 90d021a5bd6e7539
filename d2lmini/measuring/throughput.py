"""Throughput: a training step, how long the host launches its kernels, and what more threads bring.

Work of which the share s must be done by one worker is at most 1 ÷ s times as fast with many (Amdahl, "Validity of the
single processor approach to achieving large scale computing capabilities", AFIPS Spring Joint Computer Conference,
1967): with p of them, p ÷ (1 + s·(p − 1)) times.
"""

import torch

from d2lmini.measuring import line_fit


def training_step(model, X, y, lr=0.01):
    """Return a function that trains `model` for one step on a batch.

    It is plain SGD. Nothing reads the loss, so the host need not wait.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr)

    def step():
        loss = torch.nn.functional.cross_entropy(model(X), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def host_seconds(trace):
    """Return the seconds that the host spent launching operations in a `timeline.Trace`."""
    return sum(span.seconds for span in trace.spans if span.kind == "launch")


def amdahl(serial, workers):
    """Return how many times as fast `workers` are as a single one.

    serial: the share of the work that is done by one alone. Raises ValueError
    for a share outside 0 to 1 and for fewer than one worker.
    """
    if not 0 <= serial <= 1 or workers < 1:
        raise ValueError(f"expected a share from 0 to 1 and at least 1 worker, got {serial} and {workers}")
    return workers / (1 + serial * (workers - 1))


def serial_fraction(workers, seconds):
    """Return the share of the work that did not get faster, fitted to the times of several numbers of workers.

    Amdahl's law is a line in 1 ÷ p: the seconds that stay, and those that p workers share. Below 0 the workers are
    faster together than Amdahl allows, as when their caches add up.

    Args:
        workers: The numbers of workers.
        seconds: The time with each.

    Raises:
        ValueError: As `line_fit.fit`, and for times that do not fall at all.
    """
    line = line_fit.fit([1 / p for p in workers], seconds)
    return line.half / (1 + line.half)  # half: the seconds that stay ÷ those that are shared
