"""Loading data: batches that take time to make, on the simulated clock.

A training loop is a pipeline of two stages: the loader makes a batch, the device trains on it. In the long run it is as
fast as the slower of the two, and the device is busy for the share min(1, step ÷ load) of the time.
"""

import math

import simgpu


def utilisation(load, step, workers=1):
    """Return the share of the time in which the device computes.

    load: seconds in which one worker makes a batch. step: seconds in which
    the device trains on it. In the long run the slower stage sets the pace.
    """
    return min(1.0, workers * step / load) if load else 1.0


def workers_needed(load, step):
    """Return the fewest workers that keep the device busy, if they do not get in each other's way; at least one."""
    return max(1, math.ceil(load / step))


class SimulatedLoader:
    """Yields the given batches, each of which takes `seconds` of the simulated clock to make.

    Without workers the program makes each batch itself when it is asked for, and does nothing else meanwhile. With
    workers, processes beside it make them in turn, as those of PyTorch's DataLoader do.

    Args:
        batches: A list of what it yields.
        seconds: Simulated seconds that one worker takes to make a batch.
        workers: How many processes make batches; 0 for the program itself.
        prefetch: How many batches are ordered ahead for each worker.

    Raises:
        RuntimeError: There is no simulated clock.
    """

    def __init__(self, batches, seconds, workers=0, prefetch=2):
        self.batches, self.seconds, self.workers, self.prefetch = batches, seconds, workers, prefetch

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        clock = simgpu.clock()
        return self._with_workers(clock) if self.workers else self._alone(clock)

    def _alone(self, clock):
        for i, batch in enumerate(self.batches):
            clock.advance(self.seconds, f"load batch {i}")
            yield batch

    def _with_workers(self, clock):
        free, ready = [0] * self.workers, []

        def order(i):
            worker = i % self.workers
            free[worker] = clock.beside(1 + worker, self.seconds, f"load batch {i}", after=free[worker])
            ready.append(free[worker])

        for i in range(min(self.workers * self.prefetch, len(self.batches))):
            order(i)
        for i, batch in enumerate(self.batches):
            clock.wait_until(ready[i], "wait for the loader")
            if len(ready) < len(self.batches):
                order(len(ready))
            yield batch
