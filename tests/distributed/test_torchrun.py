"""The command line under torchrun: what it prints and writes, and that all ranks end with one line when one fails."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import failing_rank
import psutil
import pytest
import torch

from d2lmini.data import datasets
from d2lmini.distributed import torchrun as group
from d2lmini.distributed import watch
from d2lmini.trainer import cli, options

ENVIRONMENT = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "here",
               "MASTER_PORT": "1"}  # fmt: skip
HERE = Path(__file__).parent
PROGRAM = "python -m d2lmini.train: error: "
WORDS = ["--epochs", "2", "--batch-size", "20", "--patience", "6"]
FAILURES = {  # (rank, how, engine) -> the line
    (0, "is killed", "ddp"): r"rank 0 \(process \d+ on \S+\) was killed or has ended",
    (1, "stops", "ddp"): r"rank 1 \(process \d+ on \S+\) has given no sign of life for \d+ s: it is stopped, .*",
    (0, "hangs", "allreduce"): r"rank 0 \(.*\) has done nothing for \d+ s while others waited: .* __main__.<lambda>",
    (1, "computes", "allreduce"): r"rank 1 \(.*\) has computed on one batch for \d+ s while others waited, the longest "
                                  r"before took .* m?s: it is in __main__._compute; raise --patience if .*",
    (0, "sleeps", "ddp"): r"rank 0 \(process \d+ on \S+\) has given no sign of life for \d+ s: it is .*",
    (1, "nan", "allreduce"): r"the loss is nan in epoch 1, batch 5, on cpu \(rank 1\): lower the learning rate, .*",
}


def torchrun(folder, *words):
    """Start torchrun with two processes of one thread each; it leaves files in `folder`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent), "TQDM_DISABLE": "1",
                   "TMPDIR": str(folder)}  # fmt: skip
    environment.pop("D2LMINI_DEVICES", None)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """For each failure the exit code and what was printed; all run at once, for most of their time is waiting."""
    folder, program = tmp_path_factory.mktemp("torchrun"), HERE / "failing_rank.py"
    started = {case: torchrun(folder, program, *case[:2], "--engine", case[2], *WORDS) for case in FAILURES}
    found = {}
    for case, process in started.items():
        out, err = process.communicate(timeout=200)
        found[case] = process.returncode, out.splitlines(), err.splitlines()
    return found


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: " ".join(map(str, case)))
def test_when_one_rank_fails_all_end_and_one_says_why(failed, case):
    code, out, err = failed[case]
    said = [line.removeprefix(PROGRAM) for line in err if line.startswith(PROGRAM)]
    assert code == 1
    assert len(said) == 1, err
    assert re.fullmatch(FAILURES[case], said[0])
    assert not any("forcefully" in line for line in err), err  # torchrun had to kill nobody that did not listen
    assert not any("gloo" in line and "LeNet" not in line for line in (*out, *err)), err
    processes = [int(line.split()[1]) for line in out if line.startswith("process")]
    assert len(processes) == 2
    assert not any(psutil.pid_exists(number) for number in processes)


def test_a_run_started_again_in_which_a_rank_then_computes_for_long_ends_as_one_process_does(tmp_path, monkeypatch):
    words = ["--epochs", "2", "--batch-size", "20", "--accumulate", "2", "--clip", "1", "--checkpoint"]
    process = torchrun(tmp_path, "--max-restarts=1", HERE / "failing_rank.py", 1, "errs,busy", *words,
                       tmp_path / "two.pt", "--every", 2, "--resume", "--patience", "3",
                       "--json", tmp_path / "r.json")  # fmt: skip
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    [said] = [line.removeprefix(PROGRAM) for line in err.splitlines() if line.startswith(PROGRAM)]
    assert re.fullmatch(r"rank 1: KeyError: 'colour' \(line \d+ of .*failing_rank.py\)", said)
    lines = [line for line in out.splitlines() if not line.startswith("process")]
    what = "LeNet, 129,068 parameters, on cpu, cpu (ddp over gloo); digits: 150 images to train on, 150 to test on"
    assert lines[:3] == [what, f"there is no {tmp_path / 'two.pt'} yet: starting from the beginning", what]
    assert [line.split()[0] for line in lines[3:]] == ["epoch", "1", "2", "measured"]
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["world_size"], found["backend"], found["engine"], found["devices"]) == (2, "gloo", "ddp", ["cpu"] * 2)
    threads = torch.get_num_threads()
    monkeypatch.setattr(datasets, "load_data_digits", failing_rank.images)
    try:
        torch.set_num_threads(1)
        assert cli.main([*words, str(tmp_path / "one.pt"), "--devices", "2", "--kind", "cpu"]) == 0
    finally:
        torch.set_num_threads(threads)
    one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("one.pt", "two.pt"))
    assert all(torch.equal(one["engine"]["model"][key], p) for key, p in two["engine"]["model"].items())
    assert one["history"]["loss"] == two["history"]["loss"] == [epoch["loss"] for epoch in found["epochs"]]
    assert one["history"]["accuracy"] == two["history"]["accuracy"]


def test_a_bad_argument_is_said_once_and_every_rank_ends_with_code_2(tmp_path):
    process = torchrun(tmp_path, "-m", "d2lmini.train", "--devices", 2)
    _, err = process.communicate(timeout=200)
    said = [line for line in err.splitlines() if line.startswith(PROGRAM)]
    assert said == [PROGRAM + "argument --devices: under torchrun a process has one device; choose --nproc-per-node"]
    assert re.search(r"exitcode +: 2 ", err)


@pytest.mark.parametrize(("group", "words", "line"), [
    (True, ["--engine", "replicas"], "--engine replicas has all replicas in one process: leave out torchrun"),
    (False, ["--engine", "ddp"], "--engine ddp has a replica a process: start them with torchrun --nproc-per-node=2 "),
    (True, ["--devices", "1"], "argument --devices: under torchrun a process has one device; choose --nproc-per-node"),
    (True, ["--kind", "sim"], "argument --kind: simulated GPUs live in one process: leave out torchrun"),
    (True, ["--allreduce", "ring"], "argument --allreduce: ddp sums gradients in its own way; choose --engine allred"),
    (False, ["--allreduce", "shared"], "argument --allreduce: memory is shared between processes; choose --engine al"),
    (True, ["--overlap"], "argument --overlap: --engine ddp overlaps in any case, allreduce never; choose replicas"),
    (True, ["--engine", "allreduce", "--kind", "real"], "--engine allreduce exchanges tensors of the CPU: choose --k"),
    (True, ["--patience", "0"], "argument --patience: expected a number above 0, got '0'"),
])  # fmt: skip
def test_combinations_that_make_no_sense_are_refused(monkeypatch, capsys, group, words, line):
    for name, value in ENVIRONMENT.items() if group else ():
        monkeypatch.setenv(name, value)
    said = []
    with pytest.raises(SystemExit) as stop:
        options.parse(words, said.append)
    assert (stop.value.code, len(said)) == (2, 1)
    assert said[0].startswith(line)


def test_rank_0_alone_explains_and_looks_at_files(monkeypatch, capsys):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        options.parse(["--help"])
    assert capsys.readouterr().out == ""
    assert options.parse(["--json", "no/such/r.json"]).engine == "ddp"
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit):
        options.parse(["--help"])
    assert "--patience S" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        options.parse(["--json", "no/such/r.json"])


def test_by_default_a_rank_that_stops_is_found_and_killed_within_half_a_minute():
    patience = options.parse([]).patience
    turn_s = min(1.0, patience / 5)
    assert 10 <= patience + (watch.LOOSE_TURNS + 2) * turn_s < 30  # seen, said by the others, and killed by its guard


STUCK = """
import re
import torch.distributed as dist
from d2lmini.distributed.watch import Board, Watch
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
Watch(Board(store, "program"), 0, 1, patience=1000)
print("begun", flush=True)
re.match(r"(a+)+$", "a" * 100 + "b")
"""


def test_who_is_told_to_end_in_code_that_lets_no_other_thread_run_is_killed_although_patience_is_long():
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
    try:
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.wait(100) == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate()


def test_a_rank_has_the_gpu_of_its_local_rank_where_all_can_have_one(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert group.device("auto") == group.device("real") == torch.device("cuda", 1)
    assert group.device("cpu") == torch.device("cpu")
    assert chosen == [1, 1]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert group.device("auto") == torch.device("cpu")
    with pytest.raises(RuntimeError, match="expected 2 GPUs, one a process of this machine, found 1"):
        group.device("real")


@pytest.mark.parametrize(("words", "forced", "kind"), [
    ([], None, "auto"), ([], "real", "real"), ([], "cpu", "cpu"), ([], "sim", "cpu"),
    (["--kind", "real"], "cpu", "real"), (["--engine", "allreduce"], None, "cpu"),
    (["--engine", "allreduce"], "real", "cpu"),
])  # fmt: skip
def test_the_kind_of_a_ranks_device(monkeypatch, words, forced, kind):
    for name, value in {**ENVIRONMENT, **({"D2LMINI_DEVICES": forced} if forced else {})}.items():
        monkeypatch.setenv(name, value)
    if not forced:
        monkeypatch.delenv("D2LMINI_DEVICES", raising=False)
    assert cli.kind_of_rank(options.parse(words)) == kind
