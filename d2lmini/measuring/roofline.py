"""The roofline: how fast an operation can be, given how much it computes for each byte that it moves.

A machine is two figures, its arithmetic and its memory's bandwidth. An operation of `intensity` FLOPs a byte can't be
faster than the smaller of peak and intensity × bandwidth (Williams, Waterman and Patterson, Communications of the ACM
52(4), 2009). The two meet at the ridge: left of it memory decides, right of it arithmetic does.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch.utils.flop_counter import flop_registry

import simgpu
from d2lmini import host
from d2lmini.measuring import memory_hierarchy
from d2lmini.measuring.memory_loops import ARRAYS
from d2lmini.measuring.operations import Reporting, tensors
from d2lmini.measuring.unconstrained import run_unconstrained
from simgpu.hardware import op_costs


@dataclass(frozen=True)
class Roof:
    """A machine, or a kind of operation on it: the most FLOP/s, and the most bytes/s of its main memory."""

    name: str
    flops_per_s: float
    bytes_per_s: float

    @property
    def ridge(self):
        """The intensity, in FLOPs a byte, from which on arithmetic is what limits."""
        return self.flops_per_s / self.bytes_per_s

    def attainable(self, intensity):
        """Return the most FLOP/s that an operation of `intensity` FLOPs a byte can reach."""
        return min(self.flops_per_s, intensity * self.bytes_per_s)


@dataclass(frozen=True)
class Operation:
    """What one call computes and moves: FLOPs, bytes, and the kind and type that `op_costs` tells apart."""

    name: str
    flops: int
    nbytes: int
    kind: str
    dtype: str

    @property
    def intensity(self):
        """FLOPs a byte."""
        return self.flops / self.nbytes


def count(name, function, *args):
    """Return the `Operation` that ``function(*args)`` is; on tensors of the meta device nothing is computed.

    FLOPs are those of `torch.utils.flop_counter`, and one for each element of the largest tensor where that has no
    formula, as for an addition or a sum. Bytes are each operand read and each result written once, as `simgpu.op_work`
    has them.

    Args:
        name: What the operation is called in figures.
        function: A function of torch.
        args: Its arguments.

    Raises:
        ValueError: It calls more than one operation, or none.
    """
    found = []  # (work, FLOPs) of each call that costs something

    def note(func, args, keywords, out):
        made = args[0] if out is None else out
        work, formula = simgpu.op_work(func, args, keywords, made), flop_registry.get(func._overloadpacket)
        if work is not None:  # its FLOPs are the simulated GPU's, which rounds up to whole tiles
            largest = max(tensor.numel() for tensor in tensors((args, out)))
            found.append((work, formula(*args, **keywords, out_val=out) if formula else largest))

    with Reporting(note):
        function(*args)
    if len(found) != 1:
        names = ", ".join(work.name for work, _ in found) or "none"
        raise ValueError(f"{name}: expected a call of one operation, got {len(found)} ({names})")
    ((work, flops),) = found
    return Operation(name, flops, work.nbytes, work.kind, work.dtype)


def gpu_roof(gpu, kind="gemm", dtype="float32"):
    """Return the roof of `gpu`, a `hardware.GPU`, for a kind of operation and a type: its published figures."""
    return Roof(gpu.name, op_costs.peak_flops_per_s(gpu, kind, dtype), gpu.memory_bytes_per_s)


def gpu_flops_per_s(operation, gpu):
    """Return the FLOP/s that the cost model of the simulated GPUs expects: below the roof, by its shares of it."""
    work = (operation.flops, operation.nbytes, gpu, operation.kind, operation.dtype)
    return operation.flops / op_costs.operation_seconds(*work)


def examples(elements=2**24, device="cpu"):
    """Return name -> (function, tensors): operations of a network; `elements` is the size of those that only stream."""
    side = int(elements**0.5) // 64 * 64

    def new(*shape):
        return torch.ones(shape, device=device)

    streamed = {
        "add": (torch.Tensor.add_, new(elements), new(elements)),
        "sum": (torch.sum, new(elements)),
        "matrix × vector": (torch.mm, new(side, side), new(side, 1)),
    }
    products = {f"matmul {n}": (torch.mm, new(n, n), new(n, n)) for n in (64, 256, 1024, 2048)}
    conv = {"convolution 3×3": (torch.conv2d, new(8, 64, 58, 58), new(64, 64, 3, 3))}
    return {name: (call[0], call[1:]) for name, call in {**streamed, **products, **conv}.items()}


def measure_here(repeat=6):
    """Measure this machine with the threads that torch uses.

    The peak is that of the fastest operation, the bandwidth the best of the operations and of `memory_loops` on arrays
    that no cache holds. Both are from their shortest run, as in STREAM: a roof is what can be reached.

    Args:
        repeat: How many times each operation is measured.

    Returns:
        The `Roof`, and a list of (`Operation`, `Measurement`).

    Raises:
        MemoryError: There is not enough memory.
    """
    largest = memory_hierarchy.working_sets()[-1]
    host.require_memory(4 * largest, "the roofline")
    points = [memory_hierarchy.bandwidth([largest], kernel, host.usable_cores(), repeat)[0] for kernel in ARRAYS]
    rows = [
        (count(name, function, *args), memory_hierarchy.repeated_calls(partial(function, *args), repeat))
        for name, (function, args) in examples(largest // 8).items()
    ]
    peak = max(operation.flops / took.seconds[0] for operation, took in rows)
    rates = [1 / point.seconds.seconds[0] for point in points]
    rates += [operation.nbytes / took.seconds[0] for operation, took in rows]
    return Roof("this machine", peak, max(rates)), rows


def measured():
    """Return this machine's `Roof`, [(`Operation`, `Measurement`)], and where and when: see `run_unconstrained`."""
    (roof, rows), where = run_unconstrained(measure_here)
    return roof, rows, where
