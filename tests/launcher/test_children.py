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
    text = """
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, size, queue):
    dist.init_process_group("nccl", init_method="tcp://localhost:29501", rank=rank, world_size=size)
    torch.cuda.set_device(rank)
    x = torch.full((1,), float(rank), device="cuda")
    dist.all_reduce(x)
    queue.put(x.item())

if __name__ == "__main__":
    mp.set_start_method("spawn", force=True)
    queue, children = mp.Queue(), []
    for rank in range(3):
        children.append(mp.Process(target=work, args=(rank, 3, queue)))
        children[-1].start()
    print([queue.get() for _ in children])
    for child in children:
        child.join()
    print([child.exitcode for child in children])
"""
    ran = run(text)
    assert ran.code == 0, ran.err
    assert ran.out == "[rank0]: [3.0, 3.0, 3.0]\n[rank0]: [0, 0, 0]\n"


def test_an_error_in_a_child_is_torchs(run):
    text = """
import torch.multiprocessing as mp
def work(rank):
    if rank == 1:
        raise KeyError("missing")
if __name__ == "__main__":
    try:
        mp.spawn(work, nprocs=2)
    except mp.ProcessRaisedException as error:
        print(error.error_index, "missing" in str(error))
"""
    assert run(text).out == "[rank0]: 1 True\n"


def test_workers_of_a_data_loader_stay_processes(run):
    text = """
import os, torch
from torch.utils.data import DataLoader, Dataset
class Squares(Dataset):
    def __len__(self): return 6
    def __getitem__(self, i): return torch.tensor([i * i, os.getpid()])
class OnGpu(Squares):
    def __getitem__(self, i): return torch.ones(1).cuda()
torch.zeros(1).cuda()
if __name__ == "__main__":
    got = torch.cat(list(DataLoader(Squares(), batch_size=2, num_workers=2)))
    print(sorted(got[:, 0].tolist()), os.getpid() in got[:, 1].tolist())
    list(DataLoader(OnGpu(), num_workers=1))
"""
    ran = run(text, options=["--nproc-per-node=1"])
    assert "[rank0]: [0, 1, 4, 9, 16, 25] False\n" in ran.out
    assert ran.code == 1
    assert "Cannot re-initialize CUDA in forked subprocess" in ran.err


def test_a_signal_to_itself_and_its_number_are_a_ranks_own(run):
    program = """
import os, signal, sys
import torch.distributed as dist
rank, got = int(os.environ["RANK"]), []
handler = lambda number, frame: got.append(number)
assert signal.signal(signal.SIGUSR1, handler) == signal.SIG_DFL
assert signal.getsignal(signal.SIGUSR1) is handler
dist.init_process_group("gloo")
numbers = [None] * 2
dist.all_gather_object(numbers, os.getpid())
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
os.kill(os.getpid(), 0)
try:
    import psutil
except ImportError:
    pass
else:
    assert psutil.Process(os.getpid()).memory_info().rss == psutil.Process().memory_info().rss
print(got, len(set(numbers)), flush=True)
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGTERM)
"""
    ran = run(program, options=["--nproc-per-node", 2])
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
