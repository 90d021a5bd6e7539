"""What a reader's function does on simulated GPUs: its copies and the waits of the host, by the simulated clock."""

import torch

from d2lmini import sim
from d2lmini.checks.mechanism import attempt


def attempt_traced(function, *inputs, given):
    """Return what `attempt` returns, and the spans of the reader's code alone: comparing its inputs copies too."""
    spans = []

    def watched(*inputs):
        with sim.trace() as trace:
            result = function(*inputs)
        spans.extend(trace.spans)
        return result

    for device in range(torch.sim.device_count()):
        torch.sim.synchronize(device)
    return attempt(watched, *inputs, given=given), spans
