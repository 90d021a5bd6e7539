"""Asynchronous updates: workers that fetch parameters, compute a gradient and hand it in, without waiting for others.

    worker 0   ├── gradient ──┤├── gradient ──┤      each gradient is of parameters that others
    worker 1   ├────── gradient ──────┤├─────        have changed meanwhile: its *staleness* counts how often

What runs on a cluster as chance has it is a plan here, worked out from the workers' speeds; so a run can be repeated.
"""

from collections import namedtuple

import torch

Update = namedtuple("Update", "seconds worker staleness")
Update.__doc__ = "When an update is made, by which worker, and how many came since that worker read the parameters."


def arrivals(seconds, updates):
    """Return the first `updates` updates of workers that never wait.

    seconds: what each worker takes for a gradient, above 0 (else raises
    ValueError). At one time they come in order of workers.
    """
    if not seconds or min(seconds) <= 0:
        raise ValueError(f"expected seconds above 0, got {seconds}")
    ends = sorted((n * took, worker) for worker, took in enumerate(seconds) for n in range(1, updates + 1))
    plan, read = [], [0] * len(seconds)  # how many updates a worker saw
    for done, (time, worker) in enumerate(ends[:updates]):
        plan.append(Update(time, worker, done - read[worker]))
        read[worker] = done + 1
    return plan


def train_asynchronously(parameters, gradient, plan, rate):
    """Return the parameters before the first update and after each.

    gradient(parameters, i): that of update i, as a vector like them.
    """
    versions = [parameters]
    for i, update in enumerate(plan):
        read = versions[i - update.staleness]
        versions.append(versions[i] - rate * gradient(read, i))
    return torch.stack(versions)
