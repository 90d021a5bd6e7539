"""simgpu run: what a program finds, prints, and ends with."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simgpu.__main__ import main

PROGRAMS = Path(__file__).parent / "programs"


def lines(text, rank):
    return re.findall(rf"(?m)^\[rank{rank}\]: (.*)$", text)


def test_a_rank_finds_what_torchrun_gives_a_new_process(run):
    first = run("as_under_torchrun", "--flag", 3, options=["--nproc-per-node=4", "--standalone"])
    assert first.code == 0, first.err
    printed = [lines(first.out, rank)[0] for rank in range(4)]
    assert len({line.split("]")[0] for line in printed}) == 4
    assert printed[3].split("] ")[1].startswith("3 4 4 0 3 ")
    assert lines(first.err, 0) == ["INFO:root:only rank 0 says so"]
    assert not lines(first.err, 1)
    again = run("as_under_torchrun", "--flag", 3, options=["--nproc_per_node", 4, "--master-port", 1234])
    assert again.out == first.out


def test_modules_of_a_program_are_each_ranks_own(run, tmp_path):
    ran = run("train", f"--out_dir={tmp_path}", "--steps=2", options=["--nproc-per-node", 2])
    assert ran.code == 0, ran.err
    assert lines(ran.out, 0)[-1] == "saved 2 steps; ran True"
    assert "helpers" not in sys.modules


def test_a_module_is_run_by_its_name(run, tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("rank = None\n")
    (tmp_path / "package" / "__main__.py").write_text(
        "import os\nfrom . import inner\nprint(__package__, __name__, inner.rank())\n"
    )
    (tmp_path / "package" / "inner.py").write_text("import os\ndef rank():\n    return os.environ['RANK']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    assert main(["run", "--nproc-per-node=2", "-m", "package"]) == 0


@pytest.mark.parametrize(
    ("ending", "code", "says"),
    [
        ("sys.exit(0)", 0, "simulated seconds"),
        ("sys.exit(5 if rank == 1 else 0)", 5, "rank 1 failed first"),
        ("sys.exit('no data')", 1, "no data"),
        ("1 / (1 - rank)", 1, "ZeroDivisionError"),
        ("dist.barrier() if rank else None", 1, "DeadlockError"),
    ],
)
def test_the_exit_code_is_that_of_the_rank_that_failed_first(run, ending, code, says):
    text = f"""
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
{ending}
"""
    ran = run(text, options=["--nproc-per-node", 2])
    assert ran.code == code
    assert says in ran.err
    assert "launcher/run.py" not in ran.err


def test_time_is_simulated_and_sleeping_lets_others_run(run, tmp_path):
    text = f"""
import os, time
began, ticks = time.time(), time.perf_counter_ns()
while not os.path.exists({str(tmp_path / "done")!r}):
    time.sleep(60)
    if os.environ["RANK"] == "1" and time.time() - began > 200:
        open({str(tmp_path / "done")!r}, "w").close()
print(round(time.time() - began), (time.perf_counter_ns() - ticks) // 10**9)
"""
    began = time.time()
    ran = run(text, options=["--nproc-per-node", 2])
    assert lines(ran.out, 1) == ["240 240"]
    assert int(lines(ran.out, 0)[0].split()[0]) in (240, 300)
    assert time.time() - began < 30
    (tmp_path / "done").unlink()
    text = "import time\nbegan = time.monotonic()\ntime.sleep(100)\nprint(time.monotonic() - began < 50)\n"
    assert lines(run(text, options=["--host-time"]).out, 0) == ["True"]


def test_a_rank_that_only_sleeps_while_others_wait_is_told_as_a_deadlock(run, monkeypatch):
    from simgpu.ranks import sleeping

    monkeypatch.setattr(sleeping, "REAL_S", 0.05)
    text = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["RANK"]))
if os.environ["RANK"] == "0":
    while True:
        time.sleep(5)
dist.barrier()
"""
    ran = run(text, options=["--nproc-per-node", 2])
    assert ran.code == 1
    assert "rank 0 has slept" in ran.err
    assert "barrier" in ran.err


def test_a_report_and_a_trace(run, tmp_path):
    files = [tmp_path / name for name in ("run.json", "run.html", "trace.json")]
    options = ["--nnodes=2", "--nproc-per-node=2", "--gpu=H100-SXM5-80GB", "--memory=1GiB"]
    for file in files[:2]:
        ran = run("ddp", options=[*options, "--report", file, "--trace", files[2]])
        assert ran.code == 0, ran.err
    report = json.loads(files[0].read_text())
    assert report["ranks"] == 4
    assert report["steps"] == 4
    assert 0 < report["step_seconds"] < report["seconds"]
    for gpu in report["gpus"]:
        parts = ("busy_seconds", "exposed_communication_seconds", "idle_seconds")
        assert sum(gpu[part] for part in parts) == pytest.approx(report["seconds"])
        assert sum(gpu["held_at_peak"].values()) == gpu["peak_bytes"]
    gradients = next(row for row in report["collectives"] if row["name"] == "all_reduce")
    assert gradients["bytes"] == sum(2 * 3 * nbytes for nbytes in 4 * [4 * (9 * 16 + 17)] + 2 * [4])
    assert any("host" in wait["what"] for wait in report["host_waits"])
    assert "ddp.py:" in files[1].read_text()
    assert "http" not in files[1].read_text()
    assert {"ph", "ts"} <= set(json.loads(files[2].read_text())["traceEvents"][-1])
    assert f"{report['seconds']:.6g} simulated seconds" in ran.err


@pytest.mark.parametrize(
    ("options", "gpus", "places"),
    [
        (["--nnodes=3", "--machine=DGX-A100"], 1, ["0 0", "1 0", "2 0"]),
        (["--nnodes=2", "--gpu=T4"], 1, ["0 0", "1 0"]),
        (["--nnodes=1:2", "--nproc-per-node=2", "--machine=DGX-1-V100"], 2, ["0 0", "0 1", "1 0", "1 1"]),
        (["--machine=desktop-2020", "--nproc-per-node=gpu"], 2, ["0 0", "0 1"]),
        ([], 8, ["0 0"]),
    ],
)
def test_nodes_and_their_gpus(run, options, gpus, places):
    text = """
import os, torch, torch.distributed as dist
print(os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"], torch.cuda.device_count())
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.all_reduce(torch.ones(1, device="cuda"))
"""
    ran = run(text, options=options)
    assert [lines(ran.out, rank) for rank in range(len(places))] == [[f"{place} {gpus}"] for place in places]


def test_full_size_with_shapes_only(run, tmp_path):
    ran = run("full_size", tmp_path / "weights.pt", options=["--shapes-only", "--nproc-per-node", 1])
    assert ran.code == 0, ran.err
    assert lines(ran.out, 0) == ["1.0 False [True] True tensor(..., device='cuda:0', size=(), dtype=torch.float32)"]
    assert (tmp_path / "weights.pt").stat().st_size == 0
    assert ran.err.count("torch.compile") == 1
    assert "stand-ins" in ran.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--machine=DGX"], "machine"),
        (["--machine=DGX-A100", "--nproc-per-node=9"], "--nproc-per-node"),
        (["--nnodes=none"], "--nnodes"),
        (["--machine=DGX-A100", "--gpu=T4"], "not both"),
        (["--memory=lots"], "--memory"),
        (["--mode=fast"], "mode"),
    ],
)
def test_options_that_mean_nothing_are_refused_in_one_line(run, options, says):
    ran = run("ddp", options=options)
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.process
def test_ctrl_c_ends_a_run(tmp_path):
    program = tmp_path / "endless.py"
    program.write_text("print('begun', flush=True)\nwhile True:\n    pass\n")
    command = [sys.executable, "-m", "simgpu", "run", "--nproc-per-node", "2", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "[rank0]: begun\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130


@pytest.mark.process
def test_losses_are_those_of_real_processes(run, tmp_path):
    program = PROGRAMS / "all_of_two.py"
    logs = tmp_path / "logs"  # a file for each rank and stream: in one pipe the lines of both ranks can mix
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    command += ["--redirects=3", f"--log-dir={logs}"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run([*command, program, tmp_path / "a"], env=env, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, [path.read_text() for path in logs.rglob("stderr.log")]
    ran = run("all_of_two", tmp_path / "b", options=["--nproc-per-node=2"])
    assert ran.code == 0, ran.err
    assert len(re.findall(r"loss (\S+)", ran.out)) == 2 + 4 + 3 + 2
    for rank in range(2):
        (log,) = logs.rglob(f"{rank}/stdout.log")
        simulated = re.findall(rf"(?m)^\[rank{rank}\]: .*loss (\S+)", ran.out)
        real = re.findall(r"loss (\S+)", log.read_text())
        assert list(map(float, simulated)) == pytest.approx(list(map(float, real)), abs=2e-6)


def test_a_checkpoint_is_resumed_on_another_number_of_ranks(run, tmp_path):
    def losses(ranks, folder, *range_of_steps):
        ran = run("fsdp", f"--folder={tmp_path / folder}", *range_of_steps, options=[f"--nproc-per-node={ranks}"])
        assert ran.code == 0, ran.err
        return [float(loss) for loss in re.findall(r"loss (\S+)", ran.out)]

    whole = losses(1, "a", "--last=4")
    assert losses(2, "b") == pytest.approx(whole[:2], abs=2e-6)
    assert losses(4, "b", "--first=2", "--last=4") == pytest.approx(whole[2:], abs=2e-6)


@pytest.mark.long
def test_tensor_parallel_losses_are_those_of_real_processes(run):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", "--standalone"]
    ended = subprocess.run([*command, PROGRAMS / "tensor_parallel.py"], capture_output=True, text=True, timeout=300)
    ran = run("tensor_parallel", options=["--nproc-per-node=4"])
    assert ran.code == ended.returncode == 0, ran.err + ended.stderr
    assert lines(ran.out, 0) == ended.stdout.splitlines()
