"""The command line: what it prints and writes, and one line with an exit code for everything that can go wrong."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import simgpu
from d2lmini.data import datasets
from d2lmini.trainer import cli
from d2lmini.trainer.trainer import Trainer

QUICK = ["--epochs", "2", "--batch-size", "100"]


@pytest.fixture(autouse=True)
def few_digits(monkeypatch):
    """Some of the digits at 28×28, so that an epoch takes no time."""
    whole = datasets.load_data_digits

    def load(batch_size, seed=0):
        first, second = whole(batch_size, seed=seed)
        first.images, first.labels = first.images[:250], first.labels[:250]
        return first, second

    monkeypatch.setattr(datasets, "load_data_digits", load)
    monkeypatch.delenv("D2LMINI_DEVICES", raising=False)
    simgpu.disable()
    yield
    simgpu.disable()


def run(capsys, *words):
    """Return the exit code and the lines of stdout and of stderr."""
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


def fails(capsys, code, line, *words):
    """A run ends with an exit code and one line, in which `line` is found."""
    found, _, err = run(capsys, *QUICK, *words)
    assert (found, len(err)) == (code, 1)
    assert re.search(f"^python -m d2lmini.train: error: .*{line}", err[0])


def test_the_table_and_the_json_say_the_same(capsys, tmp_path):
    file = tmp_path / "results.json"
    code, out, err = run(capsys, *QUICK, "--devices", 2, "--json", file)
    assert (code, err) == (0, [])
    found = json.loads(file.read_text())
    assert out[0] == "LeNet, 129,068 parameters, on sim:0, sim:1; digits: 250 images to train on, 297 to test on"
    assert out[1].split("  ")[-1] == "simulated seconds"
    for line, epoch in zip(out[2:4], found["epochs"], strict=True):
        shown = [float(cell) for cell in line.split()]
        assert shown == pytest.approx([epoch[name] for name in ("epoch", "loss", "accuracy", "seconds")], abs=1e-4)
    assert out[4].startswith("simulated on 2 × GTX 1080, PCIe3-x16: ")
    assert (found["devices"], found["clock"], found["parameters"]) == (["sim:0", "sim:1"], "simulated", 129_068)
    assert found["settings"]["allreduce"] == "ring"
    assert found["images_a_second"] * found["seconds_an_epoch"] == pytest.approx(250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json"]


def test_simulated_ranks_learn_what_replicas_in_one_process_do(capsys, tmp_path):
    found = {}
    for engine in ("ddp", "replicas"):
        file = tmp_path / f"{engine}.json"
        code, out, _ = run(capsys, *QUICK, "--kind", "sim", "--devices", 3, "--engine", engine, "--json", file)
        assert code == 0
        assert (", 3 ranks (ddp): " in out[-1]) == (engine == "ddp")
        found[engine] = json.loads(file.read_text())
    ddp, replicas = found["ddp"], found["replicas"]
    assert (ddp["devices"], ddp["backend"], ddp["world_size"]) == (replicas["devices"], "simccl", 3)
    for ours, theirs in zip(ddp["epochs"], replicas["epochs"], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert ours["accuracy"] == theirs["accuracy"]


def test_one_device_is_the_cpu_and_its_times_are_measured(capsys, tmp_path):
    code, out, _ = run(capsys, *QUICK, "--kind", "cpu", "--json", tmp_path / "r.json")
    assert code == 0
    assert " on cpu; " in out[0]
    assert re.match(r"measured on .*, torch .*, 20\d\d-\d\d-\d\d: ", out[-1])
    assert json.loads((tmp_path / "r.json").read_text())["clock"] == "measured"


@pytest.mark.parametrize(
    ("count", "kind", "forced", "expected"),
    [
        (None, "auto", None, "cpu"),
        (1, "auto", None, "cpu"),
        (3, "auto", None, "sim:0 sim:1 sim:2"),
        (3, "cpu", None, "cpu cpu cpu"),
        (None, "sim", None, "sim:0 sim:1"),
        (1, "sim", None, "sim:0"),
        (None, "auto", "sim", "sim:0 sim:1"),
        (1, "auto", "sim", "sim:0"),
        (1, "auto", "cpu", "cpu"),
        (2, "auto", "cpu", RuntimeError),
        (2, "auto", "real", RuntimeError),  # not replaced by others
    ],
)
def test_devices_are_those_there_are_or_simulated_ones(monkeypatch, count, kind, forced, expected):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    if forced:
        monkeypatch.setenv("D2LMINI_DEVICES", forced)
    if expected is RuntimeError:
        with pytest.raises(RuntimeError, match=f"D2LMINI_DEVICES={forced}"):
            cli.choose_devices(count, kind, "GTX 1080")
        return
    assert " ".join(map(str, cli.choose_devices(count, kind, "V100-SXM2-16GB"))) == expected
    if "sim" in expected:
        assert torch.sim.get_device_name(0) == "Simulated V100-SXM2-16GB"


def test_the_trainer_is_the_one_that_was_asked_for():
    options = cli.arguments.parse(
        [
            "--devices",
            "2",
            "--lr",
            "0.25",
            "--momentum",
            "0.5",
            "--weight-decay",
            "0.125",
            "--clip",
            "2",
            "--accumulate",
            "3",
            "--amp",
            "float16",
            "--buckets",
            "0.5",
            "--schedule",
            "step",
            "--epochs",
            "7",
            "--overlap",
        ]
    )
    trainer = cli.make_trainer(options, [torch.device("cpu")] * 2)
    group = trainer.optimizers[1].param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.25, 0.5, 0.125)
    made = trainer.settings
    assert (made.clip, made.accumulate, made.amp, made.buckets) == (2, 3, torch.float16, 2**19)
    assert (made.allreduce, made.overlap, made.engine) == ("ring", True, "replicas")
    assert trainer.engine.schedulers[0].step_size == 3


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--data", "cifar"], "--data: .*'cifar'"),
        (["--devices", "0"], "--devices: .*least 1"),
        (["--epochs", "1.5"], "--epochs: .*whole"),
        (["--lr", "-0.1"], "--lr: .*least 0"),
        (["--lr", "nan"], "--lr: .*'nan'"),
        (["--lr", "1e400"], "--lr: .*'1e400', which is too large"),
        (["--epochs", "9" * 5000], "--epochs: expected a whole number of at most .{,30}, got '9{49}…$"),
        (["--epochs", "x" * 5000], "--epochs: .{,200}$"),
        (["--" + "x" * 5000], ".{,200}$"),
        (["two\nlines"], r"two\\nlines$"),
        (["--json", "no\nsuch/r.json"], r"--json: no\\nsuch/r.json: there is no folder .*/no\\nsuch$"),
        (["--checkpoint", "no\nsuch/c.pt"], r"--checkpoint: no\\nsuch/c.pt: .*no folder"),
        (["--clip", "0"], "--clip: .*above 0"),
        (["--buckets", "1e308"], "--buckets: .*most"),
        (["--lr=--"], "--lr: "),
        (["--batch-size=--"], "--batch-size: "),
        (["--timeout", "1e300"], "--timeout: "),
        (["--batch-size", "-1"], "--batch-size: .*least 1"),
        (["--devices", "129"], "--devices: .*most 128"),
        (["--seed", str(2**63)], "--seed: .*most 9,223"),
        (["--batch-size", "9" * 400], "--batch-size: .*most 9,223"),
        (["--timeout", "9" * 30], "--timeout: .*most"),
        (["--allreduce", "circle"], "--allreduce: .*'circle'"),
        (["--gpu", "Voodoo"], "--gpu: .*'Voodoo'"),
        (["--resume"], "--resume: need"),
        (["--json", "no/such/r.json"], "--json: .*no folder"),
        (["--json", "."], "--json: .*folder"),
        (["--json", "x" * 300], "--json: .*too long"),
        (["--json", "/proc/x/r.json"], "--json: .*folder"),
        (["--json", "./c.pt", "--checkpoint", "c.pt", "--resume"], "--json: .*checkpoint"),
        (["--json", "c.pt.previous", "--checkpoint", "c.pt", "--resume"], "--json: .*checkpoint"),
        (["--checkpoint", "no/such/c.pt"], "--checkpoint: .*no folder"),
        (["--colour"], "--colour"),
        (["digits"], "digits"),
        (["--checkpoint", "x" * 250], "--checkpoint: .*long"),
    ],
)
def test_bad_arguments_get_one_line_and_code_2(capsys, words, line):
    code, out, err = run(capsys, *words)
    assert (code, out, len(err)) == (2, [], 1)
    assert re.search(f"^python -m d2lmini.train: error: .*{line}", err[0])


def test_what_goes_wrong_later_gets_one_line_and_code_1(capsys, tmp_path, monkeypatch):
    damaged = tmp_path / "c.pt"
    assert run(capsys, *QUICK, "--checkpoint", damaged)[0] == 0
    fails(capsys, 2, "--resume", "--checkpoint", damaged)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    monkeypatch.setenv("D2LMINI_DATA", str(tmp_path))
    for words, line in (
        (["--lr", "1e20"], r"the loss is (nan|inf) in epoch 1, batch \d, on cpu \(rank 0\)"),
        (["--kind", "sim", "--devices", 2, "--engine", "ddp", "--lr", "1e30"], "rank 0"),
        (["--checkpoint", damaged, "--resume"], r"damaged: .*mv .*c.pt.previous"),
        (["--data", "mnist"], r"train-images-idx3-ubyte.gz"),
        (["--kind", "real", "--devices", 99], r"99 or more accelerators"),
    ):
        fails(capsys, 1, line, *words)
    assert damaged.read_bytes() == content
    damaged.unlink()
    for words in ([], ["--resume"]):  # the one before is not lost by starting over
        fails(capsys, 2, "mv ", "--checkpoint", damaged, *words)
    monkeypatch.setenv("D2LMINI_DEVICES", "gpu")
    fails(capsys, 1, "gpu")


def test_other_options_are_no_way_to_go_on(capsys, tmp_path):
    file = ["--checkpoint", tmp_path / "c.pt"]
    assert run(capsys, *QUICK, *file, "--schedule", "cosine")[0] == 0
    for option, value, line in (
        ("--epochs", 3, "T_max"),
        ("--schedule", "none", "schedule"),
        ("--seed", 1, "seed"),
        ("--batch-size", 50, "batch_size"),
        ("--accumulate", 2, "accumulate"),
        ("--lr", 0.1, "lr is 0.05"),
    ):
        fails(capsys, 1, line, *file, "--schedule", "cosine", "--resume", option, value)


def test_what_all_simulated_ranks_raise_is_no_fault_of_one_of_them(capsys, monkeypatch):
    make = cli.make_trainer

    def making(options, where):
        trainer = make(options, where)
        if where[0].index == 1:
            trainer.engine.losses[0].register_forward_hook(lambda module, given, loss: loss * float("nan"))
        return trainer

    monkeypatch.setattr(cli, "make_trainer", making)
    _, _, err = run(capsys, *QUICK, "--kind", "sim", "--devices", 2, "--engine", "ddp")
    assert [line.count("rank") for line in err] == [1]
    assert re.search(r"error: the loss is nan in epoch 1, batch 1, on sim:1 \(rank 1\)", err[0])


def test_a_traceback_is_shown_where_it_is_asked_for(capsys):
    _, _, err = run(capsys, *QUICK, "--lr", "1e20", "--traceback")
    assert err[0].startswith("Traceback")
    assert err[-1].startswith("python -m d2lmini.train: error: the loss is")


def test_an_interrupt_ends_with_130_and_says_how_to_go_on(capsys, tmp_path, monkeypatch):
    def interrupted(self, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "fit", interrupted)
    code, _, err = run(capsys, *QUICK, "--checkpoint", tmp_path / "c.pt")
    assert (code, err) == (130, [f"interrupted: go on with --checkpoint {tmp_path / 'c.pt'} --resume"])
    assert run(capsys, *QUICK)[::2] == (130, ["interrupted"])
    _, _, err = run(capsys, *QUICK, "--checkpoint", tmp_path / "two\nlines")
    assert err == [f"interrupted: go on with --checkpoint $'{tmp_path}/two\\nlines' --resume"]


def test_it_explains_itself_in_any_encoding(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    sys.stdout.flush()
    text = " ".join(shown.getvalue().decode("ascii").split())
    for words in ("MiB (2^20 bytes) of gradients", "(default: digits)", "(default: 0.05)", "130 interrupted"):
        assert words in text
    assert "default: None" not in text


PROGRAM = [sys.executable, "-m", "d2lmini.train"]


def listening():
    """Called in a new process: take interrupts, also where the tests themselves were told to ignore them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.process
def test_where_nobody_reads_it_ends_in_one_line():
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        found = subprocess.run(
            [*PROGRAM, "--epochs", "1", "--model", "softmax"],
            stdout=stream,
            text=True,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert found.returncode == 1
    (line,) = found.stderr.splitlines()
    assert "pipe" in line


@pytest.mark.process
def test_an_interrupt_while_it_is_importing_is_one_line():
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *PROGRAM[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listening,
    ) as running:
        for line in running.stderr:
            if "torch._C" in line:
                break
        running.send_signal(signal.SIGINT)
        lines = [line for line in running.stderr if not line.startswith("import time:")]
        assert running.wait(120) == 130
    assert lines == ["interrupted\n"]


@pytest.mark.process
@pytest.mark.parametrize("second", ["at once", "when the line is there"])
def test_interrupts_of_a_run_are_one_line_that_says_how_to_go_on(tmp_path, second):
    words = [*PROGRAM, "--model", "softmax", "--epochs", "10000", "--checkpoint", tmp_path / "c.pt"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listening
    ) as running:
        for _ in range(3):
            running.stdout.readline()  # what is trained, the table's head, the first epoch
        running.send_signal(signal.SIGINT)
        err = "" if second == "at once" else running.stderr.readline()
        running.send_signal(signal.SIGINT)
        err += running.communicate(timeout=120)[1]
    assert running.returncode == 130
    said = f"interrupted: go on with --checkpoint {tmp_path / 'c.pt'} --resume\n"
    assert err == said or (err == "" and second == "at once")  # that one may come before there is time for a line
    if second != "at once":
        assert not {path.suffix for path in tmp_path.iterdir()} - {".pt", ".previous"}  # neither half a file nor a lock


@pytest.mark.process
def test_a_second_interrupt_ends_it_wherever_it_is_without_another_word():
    path = Path(__file__).with_name("interrupted_twice.py")
    found = subprocess.run([sys.executable, path], stderr=subprocess.PIPE, text=True, check=False)
    assert (found.returncode, found.stderr) == (130, "interrupted\n")


@pytest.mark.process
def test_a_full_disk_is_told_with_what_was_written():
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with open("/dev/full", "w") as full:
        words = [*PROGRAM, "--epochs", "1", "--model", "softmax"]
        found = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 1
    assert "No space left on device: 'standard output'" in found.stderr
    assert len(found.stderr.splitlines()) == 1
