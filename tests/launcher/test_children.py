"""Processes that a program starts itself, on ranks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def test_spawn_on_ranks(run):
    ran = run("spawned")
    assert ran.code == 0, ran.err
    found = dict(re.findall(r"rank (\d) losses (.*)", ran.out))
    assert set(found) == {"0", "1"}
    assert found["0"] != found["1"]
    last = [found[rank].split()[-1] for rank in "01"]
    assert f"[rank0]: last losses {' '.join(last)}" in ran.out


@pytest.mark.long
def test_spawn_gives_the_losses_of_real_processes(run):
    ended = subprocess.run([sys.executable, PROGRAMS / "spawned.py"], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    simulated = [line.partition(": ")[2] for line in run("spawned").out.splitlines()]
    assert sorted(simulated) == sorted(ended.stdout.splitlines())


def test_processes_one_by_one(run):
    ran = run("processes_one_by_one")
    assert ran.code == 0, ran.err
    assert ran.out == "[rank0]: [3.0, 3.0, 3.0]\n[rank0]: [0, 0, 0]\n"


def test_an_error_in_a_child_is_torchs(run):
    assert run("error_in_a_child").out == "[rank0]: 1 True\n"


def test_workers_of_a_data_loader_stay_processes(run):
    ran = run("loader_workers", options=["--nproc-per-node=1"])
    assert "[rank0]: [0, 1, 4, 9, 16, 25] False\n" in ran.out
    assert ran.code == 1
    assert "Cannot re-initialize CUDA in forked subprocess" in ran.err


def test_a_signal_to_itself_and_its_number_are_a_ranks_own(run):
    ran = run("signals_to_itself", options=["--nproc-per-node", 2])
    assert ran.out.count("[10, 10] 2") == 2
    assert (ran.code, "rank 1 failed first" in ran.err) == (143, True)


def test_what_a_program_leaves_for_its_end_and_for_signals(run):
    text = """
import atexit, os, signal, torch.distributed as dist
rank = os.environ["RANK"]
dist.init_process_group("nccl")
atexit.register(dist.destroy_process_group)
atexit.register(print, "last words of", rank)
before = signal.signal(signal.SIGTERM, lambda *_: None)
print(before == signal.SIG_DFL, signal.signal(signal.SIGTERM, before) == before)
"""
    ran = run(text, options=["--nproc-per-node=2"])
    assert ran.code == 0, ran.err
    assert ran.out.count("True False") == 2
    assert "[rank1]: last words of 1" in ran.out
