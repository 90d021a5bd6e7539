"""Time: clocks that wait for the devices, repeats with an interval, and no verdict on noise.

Work on simulated GPUs is timed with their simulated clock: such a number is called *simulated* and names the machine
that is modelled. All else is timed with the wall clock of this machine (``time.perf_counter``): such a number is called
*measured* and names the machine, the date and the software. `provenance` tells which of the two a number is.
"""

import datetime
import math
import os
import statistics
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

import torch

import simgpu
from d2lmini.devices import processor, synchronize, try_all_gpus

# Settings that hold the CPU to fewer instructions than it has, so that results agree between machines: a time that was
# taken under one is not the machine's best.
SLOWING = ("MKL_CBWR", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")


class Timer:
    """Record the durations of laps, in seconds, waiting for the devices before each reading of the clock.

    The interface is d2l's. `devices` are those that the timed code uses; all accelerators when none are given. When all
    of them are simulated, the seconds are simulated too.

    >>> simgpu.enable(1)
    >>> timer = d2l.Timer()
    >>> simgpu.clock().advance(0.25)  # what is timed; here the host is busy
    >>> timer.stop(), timer.avg()
    (0.25, 0.25)
    """

    def __init__(self, devices=()):
        """Start the first lap at once, as d2l's timer does."""
        self.devices = tuple(devices)
        self.times = []
        self._read = clock(devices)
        self.start()

    def start(self):
        """Begin a lap."""
        synchronize(*self.devices)
        self._began = self._read()

    def stop(self):
        """End the lap that `start` began, keep its duration in `times`, and return it in seconds."""
        synchronize(*self.devices)
        self.times.append(self._read() - self._began)
        return self.times[-1]

    def sum(self):
        """Return the total of all laps, in seconds."""
        return sum(self.times)

    def avg(self):
        """Return the mean of the laps, in seconds.

        Raises:
            RuntimeError: When there is none.
        """
        if not self.times:
            raise RuntimeError("no lap was recorded: call start() and stop() before avg()")
        return self.sum() / len(self.times)

    def cumsum(self):
        """Return the running total after each lap, in seconds."""
        return [sum(self.times[: i + 1]) for i in range(len(self.times))]


@dataclass(frozen=True)
class Measurement:
    """Repeated measurements of one thing: `seconds`, sorted, at least 6 of them."""

    seconds: tuple

    @property
    def median(self):
        """The median, in seconds."""
        return statistics.median(self.seconds)

    @property
    def interval(self):
        """An interval, in seconds, that holds the true median in at least 95 of 100 such measurements.

        Its ends are order statistics, so nothing is assumed about the noise except that the repeats are independent:
        the number of them below the median is binomial(n, 1/2) (Conover, Practical Nonparametric Statistics, 3.2).
        """
        n, tail, k = len(self.seconds), 0.0, 0
        while tail + math.comb(n, k) / 2**n <= 0.025:
            tail += math.comb(n, k) / 2**n
            k += 1
        return self.seconds[k - 1], self.seconds[n - k]

    def __str__(self):
        low, high = self.interval
        return f"{human(self.median)} (95 % interval {human(low)} to {human(high)}, {len(self.seconds)} runs)"


class Benchmark:
    """Print the seconds that a ``with`` takes, on all accelerators, after a description; the clock is `Timer`'s."""

    def __init__(self, description="Done"):
        self.description = description

    def __enter__(self):
        self.timer = Timer()
        return self

    def __exit__(self, *error):
        print(f"{self.description}: {self.timer.stop():.4f} sec")


def measure(function, repeat=11, warmup=2, devices=()):
    """Measure how long a function takes, the devices being synchronised before each reading of the clock.

    Args:
        function: A function without arguments.
        repeat: How many calls are measured, 6 or more: fewer give no 95 % interval.
        warmup: How many calls come first, unmeasured: memory is allocated, code is loaded, caches fill.
        devices: Those that the function uses; all accelerators when none are given.

    Returns:
        The `Measurement`.

    Raises:
        ValueError: Fewer than 6 repeats.
    """
    return take_turns({"": function}, repeat, warmup, devices)[""]


def take_turns(functions, repeat=11, warmup=2, devices=()):
    """Measure several functions in turns, so that a machine whose speed drifts drifts for all.

    Args:
        functions: Name -> function without arguments.
        repeat, warmup, devices: As `measure` takes them.

    Returns:
        Name -> `Measurement`.
    """
    if repeat < 6:
        raise ValueError(f"a 95 % interval of the median needs at least 6 repeats, got {repeat}")
    for function in [*functions.values()] * warmup:
        function()
    timers = {name: Timer(devices) for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            timers[name].start()
            function()
            timers[name].stop()
    return {name: Measurement(tuple(sorted(timer.times))) for name, timer in timers.items()}


def compare(name_a, a, name_b, b):
    """Say in a sentence which of two measurements is faster, and by how much, or that no difference was measurable.

    There is a verdict only when the 95 % intervals do not overlap.

    Args:
        name_a, name_b: What was measured, in words.
        a, b: The `Measurement`s.

    >>> slow, fast = d2l.Measurement((2e-3,) * 6), d2l.Measurement((1e-3,) * 6)
    >>> d2l.compare("a loop", slow, "a product", fast)
    'a product was 2.00 times as fast as a loop (1 ms against 2 ms)'
    """
    if a.interval[1] >= b.interval[0] and b.interval[1] >= a.interval[0]:
        return f"no difference was measurable between {name_a} ({human(a.median)}) and {name_b} ({human(b.median)})"
    (fast, f), (slow, s) = sorted([(name_a, a), (name_b, b)], key=lambda pair: pair[1].median)
    return f"{fast} was {s.median / f.median:.2f} times as fast as {slow} ({human(f.median)} against {human(s.median)})"


def within(seconds, function, *args):
    """Return what a function returns, or raise what it raises, but wait no longer than so many seconds.

    It runs in a thread of its own, so that an interrupt is heard whatever it waits for; given up, it is left to itself.

    Raises:
        TimeoutError: It took longer.
    """
    found = Future()

    def run():
        try:
            found.set_result(function(*args))
        except BaseException as error:
            found.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found.done():
        raise TimeoutError("took too long")
    return found.result()


def simulated(devices=()):
    """Return whether time on these devices, or all accelerators if none are given, is read from the simulated clock.

    Raises:
        ValueError: A mixture of simulated and real accelerators, for which no clock is right.
    """
    kinds = {torch.device(simgpu.to_sim(device)).type for device in devices or try_all_gpus()} - {"cpu"}
    if "sim" in kinds and len(kinds) > 1:
        raise ValueError(f"expected devices of one clock, got simulated and real ones: {', '.join(sorted(kinds))}")
    return kinds == {"sim"} and simgpu.has_clock()


def clock(devices=()):
    """Return the function that tells the seconds by which work on these devices is timed."""
    return simgpu.now if simulated(devices) else time.perf_counter


def provenance(devices=()):
    """Return where a number comes from: the machine modelled, or the machine, threads, software, settings and date."""
    if simulated(devices):
        return f"simulated on {simgpu.machine().name}"
    products = [processor()]
    for device in devices or try_all_gpus():
        if torch.device(device).type != "cpu":
            products.append(str(device))
    threads = torch.get_num_threads()
    where = f"{' with '.join(products)}, {threads} CPU thread{'s' * (threads > 1)}"
    held = "".join(f", {name}={os.environ[name]}" for name in SLOWING if os.environ.get(name))
    return f"measured on {where}, torch {torch.__version__}{held}, {datetime.date.today().isoformat()}"


def human(seconds):
    """Return a duration in the unit that reads best: ``'1.23 ms'`` for 0.001234 seconds."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
