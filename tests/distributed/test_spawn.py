"""Running ranks as processes: results, output, failures by name, and nothing left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from rank_functions import hello, misbehave, returns_a_generator, settings

from d2lmini import host
from d2lmini.distributed import RankError, run

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]


def ranks_alive():
    """Return the processes that run ranks: children of this process, or on Linux of its helper."""
    below = [p for p in psutil.Process().children(recursive=True) if "python" in p.name().lower()]  # not a browser's
    return [p for p in below if p.status() != psutil.STATUS_ZOMBIE and p.parent().pid != os.getpid()]


def test_results_and_output_come_in_rank_order(capfd):
    assert run(hello, 3) == [0, 1, 2]
    assert capfd.readouterr().out == "[0] rank 0 of 3\n[1] rank 1 of 3\n[2] rank 2 of 3\n"


def test_every_rank_is_a_process_of_its_own_with_its_share_of_the_cores(capfd, tmp_path, monkeypatch):
    assert run(hello, 1) == [0]  # what is set from here on reaches the ranks all the same
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2LMINI_TEST", "set")
    capfd.readouterr()
    pids, threads, folders, ranks, sizes, variables = zip(*run(settings, 2))
    assert (folders, variables) == ((str(tmp_path),) * 2, ("set",) * 2)
    assert len({*pids, os.getpid()}) == 3
    assert threads == (max(1, host.usable_cores() // 2),) * 2
    assert (ranks, sizes) == (("0", "1"), ("2", "2"))
    out, err = capfd.readouterr()
    assert (out, err) == ("[0] out 0\n[1] out 1\n", "[0] err 0\n[1] err 1\n")
    assert run(settings, 2, threads=3)[1][1] == 3


FAILURES = {
    "raises": "rank 1 of 3 raised ValueError: this rank has no data:",
    "exits": "rank 1 of 3 ended with exit code 3",
    "is killed": "rank 1 of 3 was killed by SIGKILL",
    "leaves": "rank 1 of 3 raised RuntimeError: the function ended its process with exit code 0",
}


@pytest.mark.parametrize("how", FAILURES)
def test_a_rank_that_fails_is_named_and_the_others_are_ended(how, capfd):
    began = time.monotonic()
    with pytest.raises(RankError) as caught:
        run(misbehave, 3, 1, how, timeout=200)
    assert str(caught.value) == FAILURES[how]
    assert caught.value.rank == 1
    assert time.monotonic() - began < 100  # the others, who wait for this rank, were not waited for
    assert not ranks_alive()
    assert capfd.readouterr().err == ""
    if how == "raises":
        assert "in _raise" in str(caught.value.__cause__)


def test_ranks_that_are_late_are_named_and_ended():
    assert run(misbehave, 2, 1, "fine") == [1, 1]  # the helper that starts ranks has imported torch
    with ThreadPoolExecutor(2) as pool:  # both wait for their time to be up
        stopped, other = (pool.submit(run, misbehave, 2, 1, how, timeout=8) for how in ("stops", "returns"))
    with pytest.raises(RankError, match=r"^ranks 0, 1 of 2 had not returned after 8 s") as caught:
        stopped.result()
    assert caught.value.rank == 0
    with pytest.raises(RankError, match=r"^rank 0 of 2 had not returned"):
        other.result()
    assert not ranks_alive()
    assert run(misbehave, 2, 1, "fine") == [1, 1]  # the next run is not disturbed


def test_a_result_that_cannot_be_sent_names_the_rank():
    with pytest.raises(RankError, match=r"^rank 0 of 1 raised TypeError: cannot pickle 'generator'"):
        run(returns_a_generator, 1)


def module_level(rank):
    return rank


def test_what_a_new_process_cannot_import_is_said_in_one_line(monkeypatch):
    def local(rank):
        return rank

    monkeypatch.setattr(module_level, "__module__", "__main__")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # as in a notebook
    for arguments, says in [
        ((local, 2), "inside another function"),
        ((lambda rank: rank, 2), "inside another function"),
        ((hello, 2, [lambda: 0]), "can be pickled"),
        (("rank_functions:hello", 2), "function"),
        ((hello, 0), "1 or more"),
        ((hello, -1), "1 or more"),
        ((hello, 1.5), "1 or more"),
        ((module_level, 2), "notebook"),
    ]:
        with pytest.raises(ValueError, match=says):
            run(*arguments)


@pytest.mark.skipif(sys.platform != "linux", reason="there the ranks end with their parent")
def test_no_rank_outlives_an_interrupt_and_no_process_a_script_that_is_killed():
    path = Path(__file__).with_name("interrupted_runs.py")
    with tempfile.TemporaryDirectory() as folder:  # whose name leaves room for that of a socket in it
        process = subprocess.Popen(
            [sys.executable, path],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": folder},
        )
        assert process.stdout.readline() == "[0, 2]\n"
        interrupted = two_ranks(process.pid, folder)
        process.send_signal(signal.SIGINT)
        assert [process.stdout.readline() for _ in range(2)] == ["[1] hangs\n", "interrupted\n"]
        assert not psutil.wait_procs(interrupted, timeout=30)[1]
        two_ranks(process.pid, folder)
        assert len(list(Path(folder).glob("d2lmini-*"))) == 1  # the second run's
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert process.communicate(timeout=60)[0] == ""
        assert not psutil.wait_procs(below, timeout=30)[1]


def two_ranks(pid, folder):
    """Return the two ranks of a script, what its helper has started, once the second has printed that it hangs."""
    script, until = psutil.Process(pid), time.monotonic() + 60
    while not any(path.read_text() for path in Path(folder).glob("d2lmini-*/1.out")):
        assert time.monotonic() < until, "expected two ranks within 60 s"
        time.sleep(0.01)
    return {*script.children(recursive=True)} - {*script.children()}
