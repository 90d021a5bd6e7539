"""The command line under torchrun: what it prints and writes, and that all ranks end with one line when one fails."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import failing_rank
import psutil
import pytest
import torch
import torch.distributed as dist

from d2lmini.distributed import failures
from d2lmini.distributed import join as group
from d2lmini.distributed.errors import DivergedError, UnlikeError
from d2lmini.trainer import cli, options
from d2lmini.trainer.comm import Comm

pytestmark = pytest.mark.process
ENVIRONMENT = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "here",
    "MASTER_PORT": "1",
}
HERE = Path(__file__).parent
PROGRAM = "python -m d2lmini.train: error: "


def torchrun(folder, *words):
    """Start torchrun with two processes of one thread each; it leaves files in `folder`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *map(str, words)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE.parents[1]),
        "TQDM_DISABLE": "1",
        "TMPDIR": str(folder),
    }
    environment.pop("D2LMINI_DEVICES", None)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def be_rank(monkeypatch, **changed):
    """Give this process the variables of a rank that torchrun started."""
    monkeypatch.delenv("D2LMINI_DEVICES", raising=False)
    for name, value in {**ENVIRONMENT, **changed}.items():
        monkeypatch.setenv(name, value)


def test_leaving_is_a_failure_too(monkeypatch, capfd):
    monkeypatch.setattr(failures, "get_error_handler", Mock())
    monkeypatch.setattr(failures.os, "_exit", Mock())
    failures.Report(dist.HashStore(), 1, 2, "train").call(lambda: sys.exit(0))
    failures.os._exit.assert_called_once_with(1)
    failures.get_error_handler().record_exception.assert_called_once()  # for torchrun's own report
    assert re.fullmatch(r"train: error: rank 1: SystemExit: 0 \(line \d+ of .*\)\n", capfd.readouterr().err)


@pytest.mark.parametrize("error", [DivergedError("it (rank 0)"), UnlikeError("it"), OSError(28, "it")], ids=repr)
def test_a_line_blames_nobody_but_the_rank_that_it_is_about(monkeypatch, capfd, error):
    monkeypatch.setattr(failures, "get_error_handler", Mock())
    monkeypatch.setattr(failures.os, "_exit", Mock())
    comm = Comm.__new__(Comm)
    comm.alone, comm.here = False, range(1)
    monkeypatch.setattr(dist, "broadcast_object_list", lambda box, source: None)
    failures.Report(dist.HashStore(), 1, 2, "train").call(lambda: comm.on_rank_0(Mock(side_effect=error)))
    said = capfd.readouterr().err
    assert said == f"train: error: {'rank 0: ' if isinstance(error, OSError) else ''}{error}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere orphans have another parent")
def test_when_torchrun_is_killed_its_ranks_end(tmp_path):
    process = torchrun(tmp_path, HERE / "failing_rank.py", 1, "hangs", "--epochs", "2", "--batch-size", "50")
    numbers = [int(process.stdout.readline().split()[1]) for _ in range(2)]
    ranks = [psutil.Process(number) for number in numbers]
    while not process.stdout.readline().startswith("    1"):  # both have learnt for an epoch
        pass
    process.kill()
    _, err = process.communicate(timeout=60)
    assert not psutil.wait_procs(ranks, timeout=30)[1]
    assert "torchrun, which started it, has ended" in err


def test_a_run_whose_rank_hangs_names_it_and_started_again_ends_as_one_process_does(tmp_path):
    words = ["--epochs", "2", "--batch-size", "50", "--accumulate", "2", "--clip", "1", "--checkpoint"]
    process = torchrun(
        tmp_path,
        "--max-restarts=1",
        HERE / "failing_rank.py",
        1,
        "hangs,goes on",
        *words,
        tmp_path / "two.pt",
        "--resume",
        "--json",
        tmp_path / "r.json",
        "--timeout",
        "4",
    )
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    [said] = [line.removeprefix(PROGRAM) for line in err.splitlines() if line.startswith(PROGRAM)]
    assert said.startswith("rank 0 lost rank 1, which hangs, was stopped, ")
    processes = [int(line.split()[1]) for line in out.splitlines() if line.startswith("process")]
    assert len(processes) == 4
    assert not any(psutil.pid_exists(number) for number in processes)
    lines = [line for line in out.splitlines() if not line.startswith("process")]
    what = "LeNet, 129,068 parameters, on cpu, cpu (ddp over gloo); digits: 150 images to train on, 150 to test on"
    assert lines[:2] == [what, f"there is no {tmp_path / 'two.pt'} yet: starting from the beginning"]
    shown = [line.split()[0] for line in lines[2:]]
    assert shown == ["epoch", "1", "LeNet,", "epoch", "1", "2", "measured"]  # it fails in its second epoch
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["world_size"], found["backend"], found["engine"], found["devices"]) == (2, "gloo", "ddp", ["cpu"] * 2)
    one, two = failing_rank.in_one_process([*words, tmp_path / "one.pt"]), torch.load(tmp_path / "two.pt")
    assert all(torch.equal(one["engine"]["model"][key], p) for key, p in two["engine"]["model"].items())
    assert one["history"]["loss"] == two["history"]["loss"] == [epoch["loss"] for epoch in found["epochs"]]
    assert one["history"]["accuracy"] == two["history"]["accuracy"]


@pytest.mark.parametrize(
    ("group", "words", "line"),
    [
        (True, ["--engine", "replicas"], "argument --engine: replicas are all in one process: leave out torchrun"),
        (
            False,
            ["--engine", "ddp"],
            "argument --engine: ddp has a replica in each process: start them with torchrun --nproc-per-node=2 ",
        ),
        (
            True,
            ["--devices", "1"],
            "argument --devices: under torchrun a process has one device; choose --nproc-per-node",
        ),
        (True, ["--kind", "sim"], "argument --kind: simulated GPUs live in one process: leave out torchrun"),
        (True, ["--allreduce", "ring"], "argument --allreduce: ddp"),
        (True, ["--overlap"], "argument --overlap: ddp"),
        (True, ["--engine", "allreduce", "--kind", "real"], "argument --kind: allreduce exchanges tensors of the CPU"),
        (True, ["--timeout", "0"], "argument --timeout: expected a whole number of at least 1, got '0'"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(monkeypatch, capsys, group, words, line):
    if group:
        be_rank(monkeypatch)
    said = []
    with pytest.raises(SystemExit) as stop:
        options.parse(words, said.append)
    assert (stop.value.code, len(said)) == (2, 1)
    assert said[0].startswith(line)


def test_rank_0_alone_explains_and_looks_at_files(monkeypatch, capsys):
    be_rank(monkeypatch)
    assert options.parse(["--json", "no/such/r.json"]).engine == "ddp"
    for rank in "10":
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit):
            options.parse(["--help"])
        assert ("--timeout S" in (said := capsys.readouterr().out), bool(said)) == (rank == "0",) * 2
    with pytest.raises(SystemExit):
        options.parse(["--json", "no/such/r.json"])


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"RANK": "abc"}, "RANK: expected a whole number up to 1000000, got 'abc'"),
        ({"WORLD_SIZE": "9" * 20}, "WORLD_SIZE: expected a whole number up to 1000000, got"),
        ({"RANK": "2"}, "expected a rank below 2, got 2"),
        ({"MASTER_PORT": "-1"}, "MASTER_PORT: expected a whole number up to 1000000, got '-1'"),
        (
            {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_MAX_RESTARTS": "3", "GROUP_WORLD_SIZE": "2"},
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        ),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE: .*'9{49}…$"),
        ({"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1"}, "rank 1 found no rank 0"),
    ],
)
def test_variables_that_make_no_sense_are_one_line(monkeypatch, capfd, changed, line):
    be_rank(monkeypatch, **changed)
    assert cli.main(["--timeout", "1"]) == 1
    [said] = capfd.readouterr().err.splitlines()
    assert said.startswith(PROGRAM)
    assert re.search(line, said)


def test_who_is_not_there_is_named_after_a_while(monkeypatch):
    be_rank(monkeypatch, WORLD_SIZE="3")
    with pytest.raises(TimeoutError, match="ranks 0, 2 had not begun after 1 s"):
        group.join(dist.HashStore(), torch.device("cpu"), 1)


def test_a_rank_has_the_gpu_of_its_local_rank_where_all_can_have_one(monkeypatch):
    be_rank(monkeypatch)
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


@pytest.mark.parametrize(
    ("words", "forced", "there", "chosen"),
    [
        ([], None, 2, "cuda:1"),
        ([], None, 1, "cpu"),
        ([], "real", 2, "cuda:1"),
        ([], "real", 1, RuntimeError),
        ([], "cpu", 2, "cpu"),
        ([], "sim", 2, "cpu"),
        (["--kind", "real"], "cpu", 2, "cuda:1"),
        (["--kind", "cpu"], "real", 2, "cpu"),
        (["--engine", "allreduce"], None, 2, "cpu"),
        (["--engine", "allreduce"], "real", 2, "cpu"),
        ([], "bogus", 2, ValueError),
    ],
)
def test_a_ranks_device_is_of_the_kind_that_was_asked_for(monkeypatch, words, forced, there, chosen):
    be_rank(monkeypatch, **{"D2LMINI_DEVICES": forced} if forced else {})
    monkeypatch.setattr(torch.cuda, "set_device", Mock())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    kind = options.parse(words).kind
    if isinstance(chosen, str):
        assert str(group.device(kind)) == chosen
    else:
        with pytest.raises(chosen, match=r"bogus|expected 2 GPUs"):
            group.device(kind)


@pytest.mark.parametrize(("rank", "code", "line"), [(1, 1, "found no rank 0"), (0, 130, "interrupted")])
def test_a_rank_that_finds_no_other_ends_in_one_line_in_time_and_when_it_is_interrupted(rank, code, line):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, **ENVIRONMENT, "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = [sys.executable, "-m", "d2lmini.train", "--timeout", "100" if code == 130 else "2"]
    listening = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=listening) as running:
        if code == 130:
            while port not in (each.laddr.port for each in psutil.Process(running.pid).net_connections()):
                time.sleep(0.1)  # until it waits for the others
            running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == code
    [said] = err.splitlines()
    assert said.startswith(PROGRAM)
    assert line in said
