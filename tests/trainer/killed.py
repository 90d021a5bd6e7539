"""Trains and is killed at many moments, then resumes, and says for each whether the result is the one of a whole run.

Run as a program, in a process that does nothing else with torch, since each run is a fork of it. Arguments: a folder to
work in, and "cpu" or "sim". The moments: before a batch is learnt, and before each system call that saving makes, or
in the middle of writing the file.
"""

import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path

import torch
from torch import nn

from d2lmini import sim
from d2lmini.data.datasets import Batches
from d2lmini.trainer import files
from d2lmini.trainer.checkpoint import Checkpoint
from d2lmini.trainer.replicas import Replicas
from d2lmini.trainer.trainer import Trainer

EPOCHS = 3
CALLS = ("fsync", "link", "replace")


def train(kind, file=None):
    """Train on random images with all that has a state, and return the parameters."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (36, 1, 4, 4), generator=generator, dtype=torch.uint8)
    batches = Batches(images, torch.arange(36) % 3, batch_size=5, shuffle=True)  # eight batches, the last of one image
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    schedule = partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)
    trainer = Trainer(model, nn.CrossEntropyLoss(), partial(torch.optim.Adam, lr=0.05), [f"{kind}:0", f"{kind}:1"],
                      schedule=schedule, schedule_every="update", accumulate=2, clip=0.5)  # fmt: skip
    trainer.fit(batches, EPOCHS, batches.to("cpu"), checkpoint=file, resume=bool(file))
    return {"parameters": [p.cpu() for p in model.state_dict().values()], "loss": trainer.history.loss,
            "accuracy": trainer.history.accuracy}  # fmt: skip


class Half:
    """A file of which only a part is written when the process dies: of its third write, the first half."""

    def __init__(self, file, moment):
        self.file, self.moment, self.writes = file, moment, 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        self.writes += 1
        half = len(data) // 2 if self.writes == 3 else 0
        self.file.write(data[:half])
        if half:
            self.file.flush()
            self.moment()
        self.file.write(data[half:])


def die_at(number):
    """Let the process die at its moment of that number."""
    left = [number]

    def moment():
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(function):
        return lambda *args, **kwargs: (moment(), function(*args, **kwargs))[1]

    for name in CALLS:
        setattr(os, name, before(getattr(os, name)))
    files.open = lambda *args: Half(open(*args), moment) if "w+b" in args else open(*args)  # noqa: SIM115
    Replicas.learn = before(Replicas.learn)


def fork(function, *args):
    """Run a function in a child process and return the signal that ended it, 0 if none did."""
    child = os.fork()
    if child == 0:
        try:
            function(*args)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit(f"a run failed with exit code {os.WEXITSTATUS(status)}")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def stopped_run(number, kind, file):
    """Train until the moment of that number."""
    die_at(number)
    train(kind, file)


def save_result(kind, file, result):
    """Train, on from the file if there is one, and save what came of it."""
    torch.save(train(kind, file), result)


def main(folder, kind, step):
    """Kill at every `step`-th moment until a run has no such moment any more."""
    if kind == "sim":
        sim.enable(2)
    folder, number, ended = Path(folder), 1, signal.SIGKILL
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # loads what each fork would load again
    fork(save_result, kind, None, folder / "whole")  # not here: autograd's threads do not survive a fork
    whole = torch.load(folder / "whole")
    while ended:
        file, result = folder / f"{number}.pt", folder / "resumed"
        ended = fork(stopped_run, number, kind, file)
        if file.exists():
            Checkpoint(file).read()  # never half a file
        if fork(save_result, kind, file, result):
            sys.exit("the resumed run was killed")
        resumed = torch.load(result)
        same = all(torch.equal(p, q) for p, q in zip(whole["parameters"], resumed["parameters"], strict=True))
        same = same and all(resumed[name] == whole[name] for name in ("loss", "accuracy"))
        print("moment", number, "killed" if ended else "lived", "same" if same else "different", flush=True)
        number += step
    left_over = sorted({path.suffix for path in folder.iterdir()} - {".pt", ".previous", ""})
    print("left over:", *left_over or ["nothing"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
