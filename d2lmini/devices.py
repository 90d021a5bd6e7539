"""Which devices this machine has, how to name them, and how to wait for them.

Names and signatures follow d2l where d2l has them. Nothing is looked up when the module is imported: every call asks
torch again, so a process that gains or loses a device is told the truth.

The environment variable ``D2LMINI_DEVICES`` forces the choice: ``real`` uses the accelerators of the machine, ``sim``
simulated GPUs, two unless `simgpu.enable` made another number, and ``cpu`` behaves as if there were neither. Without
it, the accelerators of the machine are used, or, where it has none, the simulated GPUs that `simgpu.enable` made.
"""

import os
import platform
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import combinations
from pathlib import Path
from types import ModuleType

import torch

import simgpu
from d2lmini import host

CHOICES = ("real", "sim", "cpu")


def cpu() -> torch.device:
    """Return the CPU, which torch counts as one device however many cores it has."""
    return torch.device("cpu")


def gpu(i: int = 0) -> torch.device:
    """Return the name of the i-th accelerator, there or not: ``cuda:i`` unless another type is in use.

    CUDA and ROCm are both called ``cuda`` by torch, Intel GPUs ``xpu``, Apple's ``mps`` and simulated GPUs ``sim``.

    Raises:
        ValueError: when `i` is not an integer of at least 0.
    """
    _check_count(i, "the index of a GPU", least=0)
    return torch.device(_accelerator() or "cuda", i)


def num_gpus() -> int:
    """Return how many accelerators there are, 0 if none."""
    kind = _accelerator()
    if kind == "sim":
        return torch.sim.device_count()  # type: ignore[attr-defined]
    return torch.accelerator.device_count() if kind else 0


def try_gpu(i: int = 0) -> torch.device:
    """Return the i-th accelerator if there is one, else the CPU.

    Raises:
        ValueError: As `gpu` does.

    >>> simgpu.enable(2)
    >>> d2l.try_gpu(1), d2l.try_gpu(2)
    (device(type='sim', index=1), device(type='cpu'))
    """
    return gpu(i) if num_gpus() > _check_count(i, "the index of a GPU", least=0) else cpu()


def try_all_gpus() -> list[torch.device]:
    """Return all accelerators as a list, or ``[cpu()]`` if there are none; never an empty list."""
    return [gpu(i) for i in range(num_gpus())] or [cpu()]


def to(x, *where, **options):
    """Return ``x.to(...)``, as a function."""
    return x.to(*where, **options)


def devices(n: int) -> list[torch.device]:
    """Return `n` distinct devices, the same one never twice: real ones if the machine has so many, else simulated ones.

    Simulated GPUs are made on the first such call; where there are some already, they must be enough.

    Raises:
        ValueError: when `n` is not an integer of at least 1.
        RuntimeError: when there are fewer devices than that.

    >>> devices.devices(2)
    [device(type='sim', index=0), device(type='sim', index=1)]
    """
    _check_count(n, "the number of devices", least=1)
    if choice() is None and n > num_gpus():
        if not simgpu.is_enabled():
            simgpu.enable(max(n, 2))
        found = [torch.device("sim", i) for i in range(torch.sim.device_count())]  # type: ignore[attr-defined]
    else:
        found = try_all_gpus()
    if n > len(found):
        names = ", ".join(str(d) for d in found)
        cure = f"unset D2LMINI_DEVICES={choice()}" if choice() in ("real", "cpu") else f"call simgpu.enable({n})"
        raise RuntimeError(f"expected {n} distinct devices, found {len(found)} ({names}): {cure}")
    return found[:n]


def synchronize(*which: torch.device | str) -> None:
    """Wait until every queued operation on the given devices has finished; with no argument, on all devices.

    An accelerator works behind the program's back, so a clock read without this measures how fast work is queued.
    """
    for device in {torch.device(d) for d in which} or set(try_all_gpus()):
        if device.type == "sim":
            torch.sim.synchronize(device)  # type: ignore[attr-defined]
        elif device.type == getattr(torch.accelerator.current_accelerator(), "type", None):
            torch.accelerator.synchronize(device)
        elif device.type != "cpu":  # a real one on a machine where simulated GPUs are what torch.accelerator means
            torch.get_device_module(device).synchronize(device)


def streams(device: torch.device) -> ModuleType | None:
    """Return the module that has the streams of a ``torch.device``, such as torch.cuda; None where it has none."""
    module = None if device.type == "cpu" else torch.get_device_module(device)
    return module if hasattr(module, "Stream") else None


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let PyTorch's operations on the CPU use `count` threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def processor() -> str:
    """Return the CPU's name as its maker gives it, or its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory_info(device: torch.device | str = "cpu") -> tuple[int | None, int | None]:
    """Return the free and the total bytes of a device's memory, None for what it does not tell.

    The CPU's are those that this process may use, where a container is allowed less than the machine has. "Free" is
    what the driver would still hand out; what PyTorch keeps for later use counts as taken.

    >>> simgpu.enable(1, memory=2**20)
    >>> devices.memory_info("sim:0")
    (1048576, 1048576)
    """
    device = torch.device(device)
    if device.type == "cpu":
        memory = host.main_memory()
        return memory.free, memory.total
    module = torch.get_device_module(device)
    if hasattr(module, "mem_get_info"):
        return module.mem_get_info(device)
    properties = module.get_device_properties(device) if hasattr(module, "get_device_properties") else None
    return None, getattr(properties, "total_memory", None)


def describe() -> str:
    """Return two lines for each device: its name in torch, processing units and memory in GiB, then the product.

    One GiB is 2**30 bytes. A unit is a core of the CPU that this process may use, or a GPU's multiprocessor. Below
    stand the links between them where they are known, with their rate in GB (10**9 bytes) a second for each direction.
    The lines are short enough for a phone.
    """
    lines = [f"cpu  {_plural(host.usable_cores(), 'core')}, {_memory('cpu')}", f"  {processor()}"]
    for i in range(num_gpus()):
        lines += _accelerator_lines(gpu(i))
    lines += _links(try_all_gpus())
    return "\n".join([*lines, f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()}"])


def _check_count(value, what, least):
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{what} must be an integer of at least {least}, got {value!r}")
    return value


def choice() -> str | None:
    """Return what D2LMINI_DEVICES says, None when it says nothing.

    Raises:
        ValueError: For what is none of `CHOICES`.
    """
    forced = os.environ.get("D2LMINI_DEVICES") or None
    if forced not in (None, *CHOICES):
        raise ValueError(f"D2LMINI_DEVICES must be one of {', '.join(CHOICES)}, got {forced!r}")
    return forced


def _accelerator():
    """Return the type of accelerator to use, such as 'cuda', or None."""
    forced = choice()
    if forced == "sim" and not simgpu.is_enabled():
        simgpu.enable()
    named = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else None
    simulated = (
        named and simgpu.to_sim(torch.device(named)).type == "sim"
    )  # cuda too, where it stands for simulated GPUs
    if forced in ("real", None) and named and not simulated:
        return named
    if forced in ("sim", None) and simgpu.is_enabled():
        return named if simulated else "sim"
    return None


def _accelerator_lines(device):
    module = torch.get_device_module(device)
    properties = module.get_device_properties(device) if hasattr(module, "get_device_properties") else None
    units = getattr(properties, "multi_processor_count", None) or getattr(properties, "gpu_eu_count", None)
    name = getattr(properties, "name", device.type.upper())
    return [f"{device}  {_plural(units, 'unit') if units else '? units'}, {_memory(device)}", f"  {name}"]


def _memory(device):
    free, total = memory_info(device)
    if total is None:
        return "? GiB"
    used = f"{(total - free) / 2**30:.1f} of " if free is not None else ""
    return f"{used}{total / 2**30:.1f} GiB{' used' * bool(used)}"


def _links(gpus):
    """Return each way in which the devices are joined, for simulated ones the link and in a second line its rate."""
    kind, pairs = gpus[0].type, list(combinations(range(len(gpus)), 2))
    if kind == "sim":
        machine = simgpu.machine()
        lines = ["host to each GPU: " + _rate(machine.host_link)]
        ways = Counter(_way(machine.route(i, j)) for i, j in pairs)
    else:
        access = getattr(torch.get_device_module(gpus[0]), "can_device_access_peer", None)
        lines, ways = [], Counter("directly" if access(i, j) else "through the host" for i, j in pairs if access)
    lines += [f"GPU to GPU, {_plural(count, 'pair')}: {way}" for way, count in ways.items()]
    if kind == "sim" and machine.network:
        lines.append(f"to other machines: {machine.adapters} × {_rate(machine.network)}")
    return lines


def _way(hops):
    return _rate(hops[0].link) if len(hops) == 1 else "through the host"


def _rate(link):
    return f"{link.name}\n  {link.bytes_per_s_per_direction / 1e9:.2f} GB/s in each direction"


def _plural(count, noun):
    return f"{count} {noun}{'s' * (count != 1)}"


if __name__ == "__main__":
    print(describe())
