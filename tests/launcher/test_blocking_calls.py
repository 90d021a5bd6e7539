"""What blocks a thread: it hands on the rank's turn, or is told as a deadlock."""

import os
import sys
import threading
import warnings

import pytest

from simgpu.ranks import blocking_calls

START = """
import fcntl, os, queue, threading, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
"""
NEVER = {
    "an event": "threading.Event().wait()",
    "a condition": "c = threading.Condition(); c.acquire(); c.wait()",
    "a barrier": "threading.Barrier(2).wait()",
    "a queue": "queue.Queue().get()",
    "a simple queue": "queue.SimpleQueue().get()",
    "a thread": "t = threading.Thread(target=threading.Event().wait, daemon=True); t.start(); t.join()",
    "a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a file": "f = open(__file__); fcntl.flock(f, fcntl.LOCK_EX); dist.barrier()",
    "another process": "import torch.multiprocessing as mp; mp.Event().wait()",
}


@pytest.mark.parametrize("what", NEVER)
def test_what_never_comes_is_a_deadlock(run, monkeypatch, what):
    monkeypatch.setattr(blocking_calls, "REAL_S", 0.1)
    ran = run(f"{START}{NEVER[what]}\n", options=["--nproc-per-node=2"])
    assert ran.code == 1
    assert "DeadlockError: no rank can go on" in ran.err
    assert "program.py:6" in ran.err


def test_a_thread_from_before_is_not_waited_for(run, monkeypatch):
    """A notebook's kernel, a server or a test's runner has threads of its own, which no rank waits for."""
    monkeypatch.setattr(blocking_calls, "REAL_S", 0.1)
    reading, writing = os.pipe()
    stranger = threading.Thread(target=os.read, args=(reading, 1))
    stranger.start()
    try:
        ran = run(f"{START}threading.Event().wait()\n", options=["--nproc-per-node=2"])
    finally:
        os.write(writing, b"x")
        stranger.join()
        os.close(reading), os.close(writing)
    assert "DeadlockError: no rank can go on" in ran.err


def test_a_rank_that_waits_while_others_are_in_a_collective_is_named(run, monkeypatch):
    monkeypatch.setattr(blocking_calls, "REAL_S", 0.1)
    ran = run(f"{START}dist.barrier() if rank else threading.Event().wait()\n", options=["--nproc-per-node=2"])
    assert "rank 0 waits for a lock or an event (in <module>, program.py:6)" in ran.err
    assert "rank 1 in barrier" in ran.err


def test_threads_of_a_rank_and_locks_of_all_ranks_go_on(run):
    ran = run("threads_and_locks", options=["--nproc-per-node=2"])
    assert ran.code == 0, ran.err
    assert ran.out.count("[0, 1, 2, 3, 285, False]") == 2


def test_processes_of_a_program_meet_by_their_own_means(run):
    ran = run("spawned_primitives", options=["--nproc-per-node=1"])
    assert ran.code == 0, ran.err
    assert ran.out == "[rank0]: [(0, 'hello'), (1, 'hello')] 11\n"


def test_warnings_of_a_rank_are_those_of_a_process(run, monkeypatch):
    def shows(message):
        print(warnings._formatwarnmsg(message), file=sys.stderr)

    monkeypatch.setattr(warnings, "_showwarnmsg_impl", shows)  # as where no pytest collects them
    ran = run("warnings_of_ranks", options=["--nproc-per-node=2"])
    assert ran.code == 0, ran.err
    assert (ran.err.count("UserWarning: once a rank"), ran.err.count("UserWarning: nothing")) == (2, 1)
    assert sorted(ran.out.splitlines()) == ["[rank0]: 1", "[rank0]: only rank 0", "[rank1]: 1"]


def test_a_lock_of_an_installed_library_is_each_ranks_own(run, tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "a_library.py").write_text("import threading\nlocks = threading.Lock(), threading.RLock()\n")
    ran = run("library_locks", folder, options=["--nproc-per-node=2"])
    assert ran.code == 0, ran.err
    assert ran.out.count("fine True") == 2
