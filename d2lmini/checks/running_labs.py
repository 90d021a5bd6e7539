"""Checks of the exercises on running a job: who hangs, and a program that may die at any moment."""

import contextlib
import io
import os
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
from torch import nn

from d2lmini.checks.lines import line_of, said
from d2lmini.checks.mechanism import Wrong, ask, brief, called, check, many, reals, usual_slip

STEPS, EVERY = 7, 2
DEATHS = (  # where the first start dies: (in what, the how-manieth), and how many updates are left for the second
    (("update", 5), 3, "the process dies in step 5"),
    (("update", 1), 7, "the process dies in step 1, before the first checkpoint"),
    (("save", 2), 5, "the process dies while it writes the second checkpoint"),
    (("rename", 2), 5, "the process dies just before it renames the second checkpoint"),
)


@check
def suspects(function):
    """``function(last)``: the ranks to look at first, by the last collective of each, a pair (number, kind)."""
    for last in (
        [(812, "all_reduce"), (812, "all_reduce"), (812, "all_reduce"), (811, "all_reduce")],
        [(7, "all_gather"), (9, "all_reduce"), (9, "all_reduce"), (7, "all_gather")],
        [(5, "all_reduce"), (5, "broadcast"), (5, "all_reduce")],
        [(99, "all_reduce"), (100, "broadcast"), (100, "all_reduce"), (100, "all_reduce")],
        [(6, "all_reduce"), (5, "all_gather"), (7, "all_reduce")],
        [(3, "all_reduce")] * 4,
    ):
        given = f"the last collectives are {', '.join(f'#{number} {kind}' for number, kind in last)}"
        got = ask(function, last, given=given, what="a list of ranks", read=_ranks)
        if got != (want := _suspects(last)):
            raise Wrong(f"{given}: expected {want or 'no rank'}, got {brief(got) if got else 'no rank'}")
    return "the ranks that are behind; where none is, those that called something else"


def _ranks(answer):
    found = reals(sorted(answer) if isinstance(answer, set | frozenset) else answer)
    return None if found is None else sorted(found)


def _suspects(last):
    behind = min(number for number, _ in last)
    if behind < max(number for number, _ in last):
        return [rank for rank, (number, _) in enumerate(last) if number == behind]
    usual = Counter(kind for _, kind in last).most_common(1)[0][0]
    return [rank for rank, (_, kind) in enumerate(last) if kind != usual]


class _Killed(BaseException):
    """The process is gone: nothing that a program catches."""


class _Momentum:
    """SGD with momentum, without the seconds that the first optimizer of torch takes to import its compiler."""

    def __init__(self, weight, rate=0.05, momentum=0.9):
        self.weight, self.rate, self.momentum = weight, rate, momentum
        self.velocity = torch.zeros_like(weight)

    def step(self):
        """Make one step with the weight's gradient, and reset that."""
        self.velocity.mul_(self.momentum).add_(self.weight.grad)
        self.weight.data.sub_(self.rate * self.velocity)
        self.weight.grad = None

    def state_dict(self):
        """Return the state, as torch's optimizers do."""
        return {"velocity": self.velocity}

    def load_state_dict(self, state):
        """Take over a state of `state_dict`."""
        self.velocity = state["velocity"].clone()


class _Job:
    """What a start begins with: fresh parameters, as in a new process."""

    def __init__(self, dies=("", 0)):
        self.net = nn.Linear(3, 1, bias=False).double()
        with torch.no_grad():
            self.net.weight.copy_(torch.tensor([[1.0, 2.0, 3.0]]))
        self.optimizer = _Momentum(self.net.weight)
        self.generator = torch.Generator().manual_seed(0)
        self._dies, self.counts, self.died = dies, Counter(), False

    def update(self):
        """Make one update with a batch that is drawn by `generator`."""
        if self.counts["update"] == self._dies[1] and self._dies[0] == "update":
            raise _Killed
        self.counts["update"] += 1
        self.net(torch.randn(4, 3, generator=self.generator, dtype=torch.float64)).square().mean().backward()
        self.optimizer.step()

    def reaches(self, what):
        """Count an event, and say whether the process dies in it."""
        self.counts[what] += 1
        return self._dies == (what, self.counts[what])

    @contextlib.contextmanager
    def watched(self):
        """Die in torch.save, with half a file, or before a file is renamed."""
        save, renames = torch.save, {name: getattr(os, name) for name in ("replace", "rename")}

        def dying_save(state, file, *args, **options):
            if not self.reaches("save"):
                return save(state, file, *args, **options)
            save(state, whole := io.BytesIO())
            half = whole.getvalue()[: whole.tell() // 2]
            file.write(half) if hasattr(file, "write") else Path(file).write_bytes(half)
            raise _Killed

        def dying_rename(name):
            def rename(*args, **options):
                if self.reaches("rename"):
                    raise _Killed
                return renames[name](*args, **options)

            return mock.patch.object(os, name, rename)

        with mock.patch.object(torch, "save", dying_save), dying_rename("replace"), dying_rename("rename"):
            yield


@check
def survive(function):
    """``function(folder, job, steps, every)``: a training that goes on from its last checkpoint, whenever it dies."""
    want = _weight(_Job(), STEPS)
    with tempfile.TemporaryDirectory() as folder:
        given = f"{many(STEPS, 'step')}, a checkpoint every {EVERY}, no failure"
        job = _start(function, folder, _Job(), given)
        _must_end(job, STEPS, want, given)
        if not job.counts["save"]:
            raise Wrong(f"{given}: torch.save was never called")
        if (saved := job.counts["save"]) > STEPS // EVERY + 1:
            raise Wrong(f"{given}: expected {STEPS // EVERY} checkpoints, torch.save was called {many(saved, 'time')}")
    for dies, left, given in DEATHS:
        with tempfile.TemporaryDirectory() as folder:
            if not _start(function, folder, _Job(dies), given).died:
                continue  # a program need not rename a file
            given = f"{given}: the second start"
            _must_end(_start(function, folder, _Job(), given), left, want, given)
    return "it goes on as if nothing had happened, wherever it dies"


def _start(function, folder, job, given):
    try:
        with job.watched():
            called(function, Path(folder), job, STEPS, EVERY, given=given)
    except _Killed:
        job.died = True
    except Exception as error:
        raise Wrong(f"{given}: your code raised {type(error).__name__}: {said(error)}{line_of(error)}") from error
    return job


def _must_end(job, left, want, given):
    made = job.counts["update"]
    if made != left:
        raise Wrong(f"{given} makes {many(made, 'update')}; expected {left} up to step {STEPS}")
    got = job.net.weight.detach()
    if not torch.allclose(got, want, rtol=1e-9):
        slips = _slips(left) if left < STEPS else ()
        told, found = (", ".join(f"{weight:.3f}" for weight in w[0].tolist()) for w in (want, got))
        raise Wrong(f"{given} ends with the weights {found}, expected {told}{usual_slip(got, slips)}")


def _weight(job, updates):
    for _ in range(updates):
        job.update()
    return job.net.weight.detach().clone()


def _slips(left):
    """Yield (hint, weights) of a second start that lacks a part of the state."""
    for lacks in ("optimizer", "generator", "optimizer generator"):
        before, after = _Job(), _Job()
        _weight(before, STEPS - left)
        after.net.load_state_dict(before.net.state_dict())
        if "optimizer" not in lacks:
            after.optimizer.load_state_dict(before.optimizer.state_dict())
        if "generator" not in lacks:
            after.generator.set_state(before.generator.get_state())
        yield f"the state of the {' and of the '.join(lacks.split())} is lost", _weight(after, left)
    yield "the weights are lost", _weight(_Job(), left)
