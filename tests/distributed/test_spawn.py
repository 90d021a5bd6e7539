"""Running ranks as processes: results, output, failures by name, and nothing left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from d2lmini.distributed import RankError, RankTimeoutError, run
from d2lmini.distributed.examples import disagree, hello, misbehave, returns, settings, total
from d2lmini.hardware import host

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def ranks_alive():
    """Return the command lines of the processes that run ranks: forked by a helper whose parent is this process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
            if parent == launch_helper():
                found.append(status.parent.name)
        except OSError:
            pass
    return found


def launch_helper():
    from multiprocessing.forkserver import _forkserver

    return _forkserver._forkserver_pid


@pytest.mark.parametrize("nprocs", [1, 2, 3])
def test_results_and_output_come_in_rank_order(nprocs, capfd):
    assert run(hello, nprocs) == list(range(nprocs))
    assert capfd.readouterr().out == "".join(f"[{r}] rank {r} of {nprocs}\n" for r in range(nprocs))


def test_every_rank_is_a_process_of_its_own_with_its_share_of_the_cores(capfd, tmp_path, monkeypatch):
    run(hello, 1)  # what is set from here on reaches the ranks all the same
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2LMINI_TEST", "set")
    capfd.readouterr()
    pids, threads, folders, ranks, sizes, variables = zip(*run("d2lmini.distributed.examples:settings", 2))
    assert (folders, variables) == ((str(tmp_path),) * 2, ("set",) * 2)
    assert len({*pids, os.getpid()}) == 3
    assert threads == (max(1, host.usable_cores() // 2),) * 2
    assert (ranks, sizes) == (("0", "1"), ("2", "2"))
    out, err = capfd.readouterr()
    assert out == "[0] out 0\n[1] out 1\n"
    assert err == "[0] err 0\n[1] err 1\n"
    assert run(settings, 2, threads=3)[1][1] == 3


def test_gloo_joins_the_ranks_and_results_may_be_tensors():
    assert run(total, 3, [1, 10, 100]) == [111] * 3
    assert [t.tolist() for t in run(returns, 2, "tensor")] == [[0, 0, 0], [1, 1, 1]]


FAILURES = {
    "raises": "rank 1 of 3 raised ValueError: this rank has no data",
    "exits": "rank 1 of 3 ended with exit code 3",
    "is killed": "rank 1 of 3 was killed by SIGKILL",
}


@linux
@pytest.mark.parametrize("how", FAILURES)
def test_a_rank_that_fails_is_named_and_the_others_are_ended(how):
    began = time.monotonic()
    with pytest.raises(RankError) as caught:
        run(misbehave, 3, 1, how)
    assert str(caught.value) == FAILURES[how]
    assert caught.value.rank == 1
    assert time.monotonic() - began < 30  # of the limit's 60: the others, who wait for this rank, were not waited for
    assert not ranks_alive()
    if how == "raises":
        assert caught.value.failures == {1: "raised ValueError: this rank has no data"}
        assert "in _raise" in str(caught.value.__cause__)


PLACES = {"hangs": "was in d2lmini.distributed.examples._hang", "stops": "gave no answer"}


@linux
@pytest.mark.parametrize("how", PLACES)
def test_ranks_that_hang_are_named_with_their_places(how):
    with pytest.raises(RankTimeoutError, match=r"^after 3 s, 2 of 2 ranks had not returned: rank 0 was in ") as caught:
        run(misbehave, 2, 1, how, timeout=3)
    waits = "was in d2lmini.distributed.examples.total, which called all_reduce"
    assert caught.value.failures == {0: waits, 1: PLACES[how]}
    assert not ranks_alive()
    assert run(misbehave, 2, 1, "fine") == [1, 1]  # the next run is not disturbed


def test_a_rank_that_left_before_the_others_is_named():
    told = "^after 5 s, 1 of 2 ranks had not returned, rank 1 had: rank 0 was in "
    with pytest.raises(RankTimeoutError, match=told):
        run(disagree, 2, "missing", "gloo", timeout=5)


def test_a_result_that_cannot_be_sent_names_the_rank():
    with pytest.raises(RankError, match=r"^rank 0 of 1 returned a generator that cannot be pickled: "):
        run(returns, 1, "generator")


def module_level(rank):
    return rank


def test_what_a_new_process_cannot_import_is_said_in_one_line(monkeypatch):
    def local(rank):
        return rank

    for fn in (local, lambda rank: rank):
        with pytest.raises(ValueError, match="defined in a notebook, at a prompt or inside another function"):
            run(fn, 2)
    with pytest.raises(ValueError, match="Put the function at the top level of a module"):
        run(total, 2, [lambda: 0])
    with pytest.raises(ValueError, match=r'expected a function as "module:function", got \'nowhere:fn\''):
        run("nowhere:fn", 2)
    for nprocs in (0, -1, 1.5):
        with pytest.raises(ValueError, match="expected a number of processes, 1 or more"):
            run(hello, nprocs)
    monkeypatch.setattr(module_level, "__module__", "__main__")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # as in a notebook
    with pytest.raises(ValueError, match="defined in a notebook"):
        run(module_level, 2)


def test_partial_functions_and_tensor_arguments_are_sent():
    assert run(partial(total, values=torch.tensor([4, 5])), 2) == [9, 9]


SCRIPT = """
import sys
from d2lmini.distributed import run
from d2lmini.distributed.examples import misbehave

def double(rank):
    return 2 * rank

{guard}
    print(run(double, 2), flush=True)
    if len(sys.argv) > 1:
        print("hanging", flush=True)
        try:
            run(misbehave, 2, 1, "hangs")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def script(tmp_path, guard, *arguments, **environment):
    """Start a script that runs a function of its own, and with an argument one that hangs."""
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
    path.write_text(SCRIPT.format(guard=guard))
    return subprocess.Popen([sys.executable, path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                            start_new_session=True)  # fmt: skip


def test_a_script_runs_its_own_functions_and_is_told_of_a_missing_guard(tmp_path):
    good, bad = script(tmp_path, 'if __name__ == "__main__":'), script(tmp_path, "if True:")
    assert good.communicate(timeout=60)[0] == "[0, 2]\n"
    assert "must call run() under if __name__ == '__main__':" in bad.communicate(timeout=60)[1]


def group(process):
    """Return the processes of a script's session, the script among them."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = status.read_text().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue
        if int(session) == process.pid and state != "Z":
            found.append(int(status.parent.name))
    return found


@pytest.fixture
def short_folder():
    """A folder whose name leaves room for that of a socket in it, of which a system allows some hundred characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@linux
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_and_no_file_outlives_a_parent_that_is_interrupted_or_killed(how, tmp_path, short_folder):
    process = script(tmp_path, 'if __name__ == "__main__":', "hang", TMPDIR=short_folder)
    assert process.stdout.readline() == "[0, 2]\n"
    assert process.stdout.readline() == "hanging\n"
    while len(group(process)) < 5 and process.poll() is None:  # the script, its helper and tracker, two ranks
        time.sleep(0.01)
    process.send_signal(how)
    process.wait(timeout=30)
    out, until = process.stdout.read(), time.monotonic() + 10
    assert out == ("interrupted\n" if how == signal.SIGINT else "")
    while group(process) and time.monotonic() < until:
        time.sleep(0.01)
    assert not group(process)
    assert not list(Path(short_folder).glob("d2lmini-*"))
