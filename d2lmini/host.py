"""What the host offers this process: cores, main memory, caches, as the system tells it; what it does not tell is None.

A container is often allowed less than the machine has. The limits stand in files of Linux's control groups (cgroups),
version 1 or 2, for the process's own group and for each group around it; the tightest holds. The kernel's documents
describe the files: "Control Group v2" and "Memory Resource Controller" (version 1).

A virtual machine shows the caches that its owner configured, or none: `virtual` says whether to be wary.
"""

import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC, SYS = Path("/proc"), Path("/sys")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class MainMemory:
    """Main memory in bytes: `total` and `free` for this process; `limited` where a cgroup allows less than there is."""

    total: int
    free: int
    limited: bool


@dataclass(frozen=True)
class Cache:
    """One cache that holds data: its level (1 is nearest to the core), bytes, bytes of a line, and cores that share it.

    `line_bytes` and `shared_by` are None where the system does not tell.
    """

    level: int
    nbytes: int
    line_bytes: int | None
    shared_by: int | None


def usable_cores():
    """Return how many cores this process may use: those it may run on, and no more than its cgroup's share of time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _cgroups("cpu"):
        quota, _, period = (_read(folder / "cpu.max") or "max").partition(" ")
        if quota == "max":  # version 1 has one file for each number, and -1 for no limit
            quota, period = _read(folder / "cpu.cfs_quota_us") or "-1", _read(folder / "cpu.cfs_period_us") or "1"
        if int(quota) > 0:
            cores = min(cores, math.ceil(int(quota) / int(period)))
    return cores


def main_memory():
    """Return the `MainMemory` of this process; "free" counts what the system would give up without swapping."""
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    for folder in _cgroups("memory"):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes") or "max"
        if limit != "max":
            total, free = min(total, int(limit)), min(free, max(int(limit) - _held(folder), 0))
    return MainMemory(total, free, total < machine.total)


def require_memory(nbytes, what):
    """Raise MemoryError in one line unless `nbytes` of main memory are free, `what` saying what they are for."""
    memory = main_memory()
    if nbytes > memory.free:
        where = "this process's cgroup allows" if memory.limited else "the machine has"
        raise MemoryError(
            f"{what} needs {nbytes / 2**20:,.0f} MiB of main memory, {memory.free / 2**20:,.0f} MiB are free of the "
            f"{memory.total / 2**20:,.0f} MiB that {where}: take a smaller size"
        )


def caches():
    """Return the caches for data of a core that this process may use, the nearest first; () where nothing is told."""
    found = _mac_caches() if sys.platform == "darwin" else _linux_caches()
    return tuple(sorted(found, key=lambda cache: cache.level))


def virtual():
    """Return whether this is a virtual machine, None where the system does not tell."""
    if sys.platform == "darwin":
        answer = _sysctl("kern.hv_vmm_present")
        return None if answer is None else bool(answer)
    flags = re.search(r"(?m)^flags\s*:(.*)$", _read(PROC / "cpuinfo") or "")
    return "hypervisor" in flags[1].split() if flags else None


def _cgroups(controller):
    """Yield the folders of this process's cgroups that may limit `controller`, from its own outward, of both versions.

    A container may be told a path that is not there, because it sees only part of the tree; then an outer one is.
    """
    for line in (_read(PROC / "self/cgroup") or "").splitlines():
        number, names, path = line.split(":", 2)
        root = SYS / "fs/cgroup"
        if number != "0" and controller not in names.split(","):
            continue
        root = (root / "unified" if (root / "unified").is_dir() else root) if number == "0" else root / controller
        group = root / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root) and folder.is_dir())


def _held(folder):
    """Return the bytes that a cgroup uses and would not give up: without the file pages that nobody used lately."""
    used = int(_read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes") or 0)
    idle = re.findall(r"(?m)^(?:total_)?inactive_file (\d+)$", _read(folder / "memory.stat") or "")
    return used - int(idle[-1]) if idle else used  # version 1 has both, and the total, which is meant, comes last


def _linux_caches():
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    for folder in sorted((SYS / f"devices/system/cpu/cpu{core}/cache").glob("index*")):
        told = {name: _read(folder / name) for name in ("level", "type", "size", "coherency_line_size")}
        size = re.fullmatch(r"(\d+)([KMG]?)", told["size"] or "")
        if told["type"] in ("Data", "Unified") and told["level"] and size and int(size[1]):
            line, sharers = told["coherency_line_size"], _read(folder / "shared_cpu_list")
            yield Cache(int(told["level"]), int(size[1]) * UNITS[size[2]], int(line) if line else None, _count(sharers))


def _count(cores):
    """Return how many cores a list such as ``0-3,8`` names, None for none."""
    ends = [part.split("-") for part in cores.split(",")] if cores else []
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends) or None


def _mac_caches():
    """Yield what sysctl tells; where cores differ, Apple's "perflevel0" are the fast ones."""
    line = _sysctl("hw.cachelinesize")
    for level, name in ((1, "l1dcachesize"), (2, "l2cachesize"), (3, "l3cachesize")):
        size = _sysctl(f"hw.perflevel0.{name}") or _sysctl(f"hw.{name}")
        if size:
            yield Cache(level, size, line, _sysctl("hw.perflevel0.cpusperl2") if level == 2 else None)


def _sysctl(name):
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdecimal() else None


def _read(path):
    """Return a file's text without the space around it, None if it can't be read or is empty."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
