"""What a schedule costs on a named machine: α + bytes ÷ β for a message, κ + bytes ÷ γ for adding it up.

α, a message's fixed part, and β, a link's rate, are `op_costs.hop_seconds`; κ, the shortest kernel's time, and γ, the
rate of adding, are `op_costs.operation_seconds`. A step lasts as long as its slowest message, or as its busiest wire if
several messages share one, and then as long as its slowest addition; steps follow one another.

The model is Hockney's, extended by γ: Thakur, Rabenseifner and Gropp, 2005. What it leaves out: ranks that are ready
early do not start early.
"""

from collections import Counter

from d2lmini.collectives.schedules import Schedule, Send, messages
from simgpu.hardware.op_costs import LAUNCH_S, copy_seconds, hop_seconds, operation_seconds
from simgpu.hardware.topology import Machine


def predict(schedule: Schedule, n: int, machine: Machine, itemsize: int = 4) -> float:
    """Return the seconds that a schedule takes, rank r being GPU r.

    Args:
        schedule: The schedule.
        n: Elements of each rank's buffer.
        machine: The machine.
        itemsize: Bytes of an element.

    Raises:
        ValueError: The machine has fewer GPUs than the schedule has ranks.
    """
    if schedule.world_size > machine.count:
        raise ValueError(f"{schedule.name} needs {schedule.world_size} GPUs, {machine.name} has {machine.count}")
    return LAUNCH_S + sum(step_seconds(schedule, n, machine, itemsize))


def step_seconds(schedule: Schedule, n: int, machine: Machine, itemsize: int = 4) -> list[float]:
    """Return the seconds of each step, a list; a step without messages takes none."""
    steps: list[list[tuple[Send, int]]] = [[] for _ in schedule.steps]
    for step, send, first, last in messages(schedule, n):
        steps[step].append((send, (last - first) * itemsize))
    return [_longest_message(sends, machine) + _longest_addition(sends, machine, itemsize) for sends in steps]


def _longest_message(sends, machine):
    longest, busy = 0.0, Counter()
    for send, nbytes in sends:
        hops = machine.route(send.src, send.dst)
        costs = hop_seconds(nbytes, hops)
        longest = max(longest, sum(delay for delay, _ in costs) + costs[-1][1])
        for hop, (_, seconds) in zip(hops, costs, strict=True):
            busy.update(dict.fromkeys(hop.wires, seconds))
    return max([longest, *busy.values()])


def _longest_addition(sends, machine, itemsize):
    adding = Counter()
    for send, nbytes in sends:
        if send.op == "reduce":  # reads both operands, writes one
            elements = nbytes // itemsize
            adding[send.dst] += operation_seconds(elements, 3 * nbytes, machine.gpu, "pointwise")
    return max(adding.values(), default=0.0)


def constants(machine: Machine) -> list[list[str]]:
    """Return a machine's α, β, γ and κ, with unit, as rows of a table: constant, value, of what.

    α and β for each kind of link. κ is the shortest kernel, which every addition pays once; the launch, by the host, is
    paid once for a schedule.
    """
    others = (None, *range(1, machine.count))  # the host, and every other GPU
    links = {hop.link.name: hop.link for other in others for hop in machine.route(0, other)}
    rows = []
    for link in links.values():
        alpha = copy_seconds(0, link)
        beta = 1 / (copy_seconds(1, link) - alpha)  # bytes a second
        rows += [["α", f"{alpha * 1e6:.1f} µs", link.name], ["β", f"{beta / 1e9:.1f} GB/s", link.name]]
    kappa = operation_seconds(0, 0, machine.gpu, "pointwise")
    gamma = 1e9 / (operation_seconds(1e9, 3e9, machine.gpu, "pointwise") - kappa)  # bytes a second
    return [
        *rows,
        ["γ", f"{gamma / 1e9:.0f} GB/s", f"adding on {machine.gpu.name}"],
        ["κ", f"{kappa * 1e6:.1f} µs", "a kernel"],
        ["launch", f"{LAUNCH_S * 1e6:.1f} µs", "the host"],
    ]


def busbw(nbytes: float, seconds: float, world_size: int) -> float:
    """Return the bus bandwidth of an all-reduce in bytes a second, as nccl-tests defines it: algbw · 2(P − 1)/P.

    algbw, the algorithm bandwidth, is a rank's buffer over the time of the collective. For an algorithm that sends no
    more than it must, bus bandwidth is the rate of each rank's link in one direction, whatever P.

    Args:
        nbytes: Of a rank's buffer.
        seconds: Of the collective.
        world_size: P.
    """
    return nbytes / seconds * 2 * (world_size - 1) / world_size


def bound_seconds(nbytes: float, world_size: int, bytes_per_s: float) -> float:
    """Return the least time of an all-reduce: a rank must send at least 2(P − 1)/P of its buffer.

    Args:
        nbytes: Of a rank's buffer.
        world_size: P.
        bytes_per_s: What each rank's link carries each way.

    Source: Patarasuk and Yuan, 2009.
    """
    return 2 * (world_size - 1) / world_size * nbytes / bytes_per_s


def crossover(slow_start: Schedule, fast_end: Schedule, machine: Machine, itemsize: int = 4, most: int = 2**40) -> int:
    """Return the number of elements from which on one schedule is predicted to take no longer than another.

    One element less, it still loses. It is taken to win at longer buffers, where the lengths next to the answer may
    still go either way: with a remainder, one chunk is longer than the others.

    Args:
        slow_start: The schedule that wins at short buffers.
        fast_end: The one that wins at long buffers.
        machine: The machine.
        itemsize: Bytes of an element.
        most: Where the search ends.

    Raises:
        ValueError: `fast_end` still loses at `most` elements.
    """

    def wins(n):
        return predict(fast_end, n, machine, itemsize) <= predict(slow_start, n, machine, itemsize)

    if not wins(most):
        raise ValueError(f"{fast_end.name} is slower than {slow_start.name} up to {most:,} elements")
    low, high = 0, most  # loses at low (or low is 0), wins at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wins(middle) else (middle, high)
    return high
