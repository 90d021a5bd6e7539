"""The table that ``nvidia-smi`` prints, for simulated GPUs: memory, utilisation since the last call, processes."""

import simgpu
from simgpu.device.state import state

_WIDTHS = (3, 22, 21, 8)
_meter = None


class _Meter:
    """Adds up what a clock's GPUs are busy with, as a trace that keeps no spans."""

    def __init__(self, clock):
        self.clock, self.spans = clock, self
        self.begin, self.busy = clock.now_ps(), {}
        clock.traces += (self,)

    def append(self, span):
        """Count an operation on a GPU; those of several streams count each, up to all of the time."""
        if span.kind == "operation":
            self.busy[span.place] = self.busy.get(span.place, 0) + span.end - span.start

    def read(self):
        """Return {place: share of the time since the last reading}, and begin anew."""
        passed, busy = self.clock.now_ps() - self.begin, self.busy
        self.begin, self.busy = self.clock.now_ps(), {}
        return {place: min(1.0, took / passed) if passed else 1.0 for place, took in busy.items()}


def smi() -> str:
    """Return the table as text: each GPU's memory and utilisation, and which ranks hold memory there.

    Utilisation is the share of simulated time since the last call, on any rank, in which the GPU computed; before the
    first call it is not measured.

    Raises:
        RuntimeError: No simulated GPUs are enabled.

    >>> simgpu.enable(1, gpu="A100-SXM4-40GB")
    >>> x = torch.ones(2**20, device="sim")
    >>> "4MiB / 40960MiB" in simgpu.smi()
    True
    """
    if not state.gpus:
        raise RuntimeError("expected simulated GPUs: call simgpu.enable(...) first")
    shares = _shares()
    first = getattr(state.clock, "first", 0)
    rule = "+" + "+".join("-" * (width + 2) for width in _WIDTHS) + "+"
    lines = [f"simulated {simgpu.machine().name}", rule, _row("GPU", "Name", "Memory-Usage", "GPU-Util"), rule]
    holders = []
    for gpu in state.gpus:
        memory = gpu.allocator
        used = f"{_mib(memory.allocated)} / {_mib(memory.capacity)}"
        share = "N/A" if shares is None else f"{shares.get(f'gpu{first + gpu.index}', 0.0):.0%}"
        lines.append(_row(gpu.index, simgpu.machine().gpu.name, used, share))
        holders += [(gpu.index, process, use.allocated) for process, use in memory.uses.items() if use.allocated]
    lines += [rule, "Processes:"]
    for index, process, nbytes in holders:
        lines.append(f"  GPU {index}  {'this program' if process is None else f'rank {process.rank}'}  {_mib(nbytes)}")
    return "\n".join(lines if holders else [*lines, "  none hold memory"])


def _shares():
    """Return the utilisation by place since the last call, None before the first, and where there is no clock."""
    global _meter
    if state.clock is None:
        return None
    if _meter is None or _meter.clock is not state.clock:
        _meter = _Meter(state.clock)
        return None
    return _meter.read()


def _row(*cells):
    return "|" + "|".join(f" {cell!s:<{width}} " for cell, width in zip(cells, _WIDTHS)) + "|"


def _mib(nbytes):
    return f"{-(-nbytes // 2**20)}MiB"
