"""Simulated GPUs: a real PyTorch device type, ``sim``, for machines that have no GPU, or not enough.

    import simgpu
    simgpu.enable(4)                             # now there are sim:0 to sim:3, and torch.sim
    x = torch.ones(2, 3, device="sim:1")

Results are computed for real, on the CPU; mixing devices raises PyTorch's own error; memory runs out where it would.
Importing this package changes nothing in torch, and does not load it; `enable` does, for the rest of the process.

    hardware      GPUs, links and machines, what operations and collectives cost there: figures with their sources
      │
    accounting    what is counted of a simulated GPU: time (clock, trace, fusion) and memory (allocator)
      │
    device        the device type: tensors, how their operations run, torch.sim
      │
    torch_glue    everything that is replaced in torch, as one list
      │
    ranks         torch.distributed on simulated ranks
      │
    control       the functions below;  testing, counting, pytest_plugin    for tests of other people's code
      │
    launcher      the command simgpu: anyone's program on simulated GPUs
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors, the names of `_HOMES` below
    from simgpu.accounting.clock import Clock
    from simgpu.accounting.op_work import op_work
    from simgpu.control import (
        as_cuda,
        clock,
        disable,
        enable,
        features,
        has_clock,
        has_numbers,
        is_enabled,
        machine,
        now,
        one_launch,
        spawn,
        trace,
        use_clock,
    )
    from simgpu.device.state import to_sim
    from simgpu.device.streams import memory_streams
    from simgpu.launcher.smi import smi
    from simgpu.ranks.errors import DeadlockError, MismatchError, RankError

_HOMES = {
    "control": "as_cuda clock disable enable features has_clock has_numbers is_enabled machine now one_launch spawn "
    "trace use_clock",
    "accounting.clock": "Clock",
    "accounting.op_work": "op_work",
    "device.state": "to_sim",
    "device.streams": "memory_streams",
    "launcher.smi": "smi",
    "ranks.errors": "DeadlockError MismatchError RankError",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'simgpu' has no attribute {name!r}")
    return getattr(import_module(f"simgpu.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
