"""What the host offers: read from trees of files made here, as containers and machines show them, and from this one."""

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from d2lmini import host
from d2lmini.host import Cache

MIB = 2**20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Return a function that puts files, path -> text, below a folder that stands for / of a machine with 8 cores."""
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host, "SYS", tmp_path / "sys")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(2, 10)), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1000 * MIB, available=700 * MIB))
    monkeypatch.setattr(sys, "platform", "linux")

    def put(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)

    return put


def test_without_cgroups_the_machine_is_ours(system):
    assert host.main_memory() == host.MainMemory(1000 * MIB, 700 * MIB, False)
    assert host.usable_cores() == 8
    assert host.caches() == ()
    assert host.virtual() is None


def test_version_2_limits_of_all_groups_around_us_hold(system):
    system(
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/memory.max": f"{400 * MIB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{150 * MIB}\n",
            "sys/fs/cgroup/outer/memory.stat": f"anon 1\ninactive_file {50 * MIB}\nactive_file 7\n",
            "sys/fs/cgroup/outer/inner/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/outer/cpu.max": "max 100000\n",
        }
    )
    assert host.main_memory() == host.MainMemory(400 * MIB, 300 * MIB, True)
    assert host.usable_cores() == 3


def test_version_1_limits_and_a_path_from_outside_the_container(system):
    system(
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{200 * MIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{60 * MIB}\n",
            "sys/fs/cgroup/memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {10 * MIB}\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        }
    )
    assert host.main_memory() == host.MainMemory(200 * MIB, 150 * MIB, True)
    assert host.usable_cores() == 1


def test_a_limit_beyond_the_machine_is_none(system):
    system(
        {
            "proc/self/cgroup": "4:memory:/\n2:cpu:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{60 * MIB}\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        }
    )
    assert host.main_memory() == host.MainMemory(1000 * MIB, 700 * MIB, False)
    assert host.usable_cores() == 8


def test_a_group_over_its_limit_has_nothing_free(system):
    system(
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "100\n",
            "sys/fs/cgroup/memory.current": "120\n",
        }
    )
    assert host.main_memory() == host.MainMemory(100, 0, True)


def test_what_needs_more_than_is_free_is_refused_in_one_line(system):
    host.require_memory(700 * MIB, "the sweep")
    with pytest.raises(MemoryError, match=r"the sweep needs 701 MiB .* 700 MiB .* machine"):
        host.require_memory(701 * MIB, "the sweep")
    system({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{64 * MIB}\n"})
    with pytest.raises(MemoryError, match=r"64 MiB .* cgroup[^\n]*$"):
        host.require_memory(65 * MIB, "the sweep")


def index(level, kind, size, cores="2", line="64"):
    return {
        "level": f"{level}\n",
        "type": f"{kind}\n",
        "size": f"{size}\n",
        "coherency_line_size": f"{line}\n",
        "shared_cpu_list": f"{cores}\n",
    }


def test_caches_of_the_first_core_we_may_use(system):
    rows = [
        index(3, "Unified", "32M", "0-3,8-11"),
        index(1, "Data", "48K"),
        index(1, "Instruction", "32K"),
        index(2, "Unified", "1024K", "2-3"),
    ]
    for i, row in enumerate(rows):
        system({f"sys/devices/system/cpu/cpu2/cache/index{i}/{name}": text for name, text in row.items()})
    system({"sys/devices/system/cpu/cpu0/cache/index0/level": "1\n"})
    expected = (Cache(1, 48 * 1024, 64, 1), Cache(2, MIB, 64, 2), Cache(3, 32 * MIB, 64, 8))
    assert host.caches() == expected


@pytest.mark.parametrize("size", ["", "0K", "unknown", None])
def test_a_cache_of_unknown_size_is_left_out(system, size):
    row = {name: text for name, text in index(1, "Data", size or "").items() if name != "size" or size is not None}
    system({f"sys/devices/system/cpu/cpu2/cache/index0/{name}": text for name, text in row.items()})
    assert host.caches() == ()


def test_sizes_can_be_told_without_the_rest(system):
    told = {"level": "2\n", "type": "Unified\n", "size": "512K\n"}
    system({f"sys/devices/system/cpu/cpu2/cache/index0/{name}": text for name, text in told.items()})
    assert host.caches() == (Cache(2, 512 * 1024, None, None),)


@pytest.mark.parametrize(("flags", "answer"), [("fpu sse hypervisor avx", True), ("fpu sse avx", False)])
def test_a_virtual_machine_says_so(system, flags, answer):
    system({"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\n"})
    assert host.virtual() is answer


def test_on_a_mac_sysctl_tells(system, monkeypatch):
    told = {
        "hw.perflevel0.l1dcachesize": 131072,
        "hw.l1dcachesize": 65536,
        "hw.l2cachesize": 4 * MIB,
        "hw.cachelinesize": 128,
        "kern.hv_vmm_present": 0,
    }

    def run(command, **options):
        known = command[-1] in told
        return SimpleNamespace(returncode=0 if known else 1, stdout=f"{told[command[-1]]}\n" if known else "")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", run)
    assert host.caches() == (Cache(1, 131072, 128, None), Cache(2, 4 * MIB, 128, None))
    assert host.virtual() is False
    told.clear()
    assert host.caches() == ()
    assert host.virtual() is None


def test_on_this_machine():
    memory = host.main_memory()
    assert 0 < memory.free <= memory.total <= psutil.virtual_memory().total
    assert 1 <= host.usable_cores() <= os.cpu_count()
    assert all(cache.nbytes > 0 for cache in host.caches())
