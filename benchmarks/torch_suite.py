"""torch's own tests of ``torch.distributed`` on simulated ranks: ``python -m benchmarks.torch_suite [--backend gloo]``.

They come with torch, in ``torch.testing._internal.distributed.distributed_test``, and need expecttest. Each test runs
on ranks that `simgpu.spawn` starts in place of processes, and without torch's profiler. The tests run one after the
other in a process of their own; one that takes longer than ``--seconds``, or ends that process, counts as failed, and
the next one runs in a new process. Printed are the failures, with their reasons, and the counts of what passed, failed,
and was skipped for torch's own reasons; failures that `KNOWN` explains are counted apart.
"""

import argparse
import contextlib
import datetime
import faulthandler
import functools
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout

import torch

import simgpu
from simgpu.launcher import host_time
from simgpu.torch_glue.here import RANK_PIDS, here
from simgpu.torch_glue.install import replaced

# What tests ask for that is refused, or is not here, by the beginning of their names.
KNOWN = {
    "test_ddp_profiling": "torch's profiler is one a process",
    "test_SyncBatchNorm_process_group": "needs torchvision",
    "test_sparse_all_reduce_sum_cuda": "simulated GPUs hold dense tensors only",
}


def load(backend, size):
    """Return the class of the tests, whose module reads the environment."""
    folder = tempfile.mkdtemp()
    os.mkdir(os.path.join(folder, "test_dir"))  # for test_get_rank
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(size), TEMP_DIR=folder, MASTER_ADDR="localhost")
    from torch.testing._internal.distributed import distributed_test as suite

    suite.Barrier.sync = staticmethod(functools.partial(meet, suite.dist))
    suite.DDPUnevenTestInput = functools.partial(with_small_pictures, suite.DDPUnevenTestInput)
    torch.autograd.profiler.profile = torch.profiler.profile = NoProfiler
    for name in ("PROFILING", "CUDA_PROFILING", "SEND_RECV_PROFILING"):
        getattr(suite, f"{name}_SUPPORTED_BACKENDS").clear()

    class Tests(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        """The tests of a group that has been made."""

    return suite, Tests


def meet(dist, wait_for=None, timeout=None):
    """Wait for the ranks as the suite's own barrier does, which tells processes by their numbers."""
    here, store = threading.current_thread(), dist.distributed_c10d._get_default_store()
    here.times = getattr(here, "times", 0) + 1
    arrived = store.add(f"barrier {here.times}", 1)
    while arrived < (wait_for or dist.get_world_size()):
        time.sleep(0.1)
        arrived = store.add(f"barrier {here.times}", 0)


def with_small_pictures(make, inp, **options):
    """Return the input of test_ddp_uneven_inputs: pictures of 24 by 24, as those of 1000 by 1000 take a CPU hours."""
    if isinstance(inp, torch.Tensor) and inp.dim() == 4:
        inp = inp[..., :24, :24].contiguous()
    return make(inp=inp, **options)


class NoProfiler(contextlib.nullcontext):
    """Stands for torch's profiler, of which a process has one, where each rank would start its own."""

    function_events = ()

    def __init__(self, *args, **options):
        super().__init__(self)


def number_of_process(own):
    """Return ``os.getpid`` of ranks, each with a number of its own."""
    return lambda: own if here() is None else RANK_PIDS + here().number


def run(suite, kind, name, size):
    """Run one test; return "passed", "skipped" or "failed", and why."""
    from torch.testing._internal import common_distributed, common_utils

    reasons = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
    file, limit = tempfile.mktemp(), datetime.timedelta(seconds=suite.default_pg_timeout)

    def body(rank):
        test = kind(name)
        test.rank, test.file_name = rank, file
        suite.dist.init_process_group(
            suite.BACKEND, init_method=f"file://{file}", world_size=size, rank=rank, timeout=limit
        )
        common_utils.set_rng_seed()
        getattr(test, name)()

    skipped = getattr(kind, name)
    if getattr(skipped, "__unittest_skip__", False):
        return "skipped", skipped.__unittest_skip_why__
    try:
        simgpu.spawn(body, nprocs=size)
    except simgpu.RankError as error:
        cause = error.__cause__
        if isinstance(cause, unittest.SkipTest):
            return "skipped", str(cause)
        if isinstance(cause, SystemExit):
            return ("skipped", reasons[cause.code]) if cause.code in reasons else ("failed", f"exit code {cause.code}")
        last = traceback.extract_tb(cause.__traceback__)[-1]
        return "failed", f"{error} ({last.name}, {last.filename.rpartition('/')[2]}:{last.lineno})"
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


def names(kind, only):
    """Return the names of the tests that the regular expression `only` fits, in unittest's order."""
    return list(filter(re.compile(only).search, unittest.TestLoader().getTestCaseNames(kind)))


def work(given):
    """Run the tests from number ``--start`` on; print each one's name before, and a line of JSON after it."""
    warnings.simplefilter("ignore")
    results = os.fdopen(os.dup(1), "w")
    simgpu.enable(max(given.size, 4), gpu="A100-SXM4-80GB")
    with simgpu.as_cuda(), replaced([*host_time.entries(), (os, "getpid", number_of_process(os.getpid()))]):
        suite, kind = load(given.backend, given.size)
        for name in names(kind, given.only)[given.start :]:
            print(name, file=results, flush=True)
            printed = io.StringIO()
            faulthandler.dump_traceback_later(given.seconds, exit=True)
            with redirect_stdout(printed), redirect_stderr(printed):
                found, reason = run(suite, kind, name, given.size)
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps([name, found, reason]), file=results, flush=True)


def follow(given):
    """Yield (test's name, what it came to, why) for all tests, whatever becomes of the processes that run them."""
    ended, start = False, 0
    while not ended:
        command = [sys.executable, "-m", "benchmarks.torch_suite", "--backend", given.backend, "--only", given.only]
        command += ["--size", str(given.size), "--seconds", str(given.seconds), "--start", str(start)]
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process,
        ):
            for begun in process.stdout:
                start += 1
                yield json.loads(process.stdout.readline() or json.dumps([begun.strip(), *_lost(process, said)]))
            ended = process.wait() == 0
            if not ended and not start:
                raise SystemExit(_lost(process, said)[1])


def _lost(process, said):
    """Return what a test came to whose process has ended, and what the process said at last."""
    code = process.wait()
    said.seek(0)
    lines = said.read().splitlines()
    places = [number for number, line in enumerate(lines) if line.startswith(("Timeout", "Fatal Python error"))]
    return "failed", f"ended its process, exit code {code}: {' '.join(lines[places[0] :] if places else lines[-20:])}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
    parser.add_argument("--size", type=int, default=2, help="ranks")
    parser.add_argument("--only", default="", help="a regular expression for the tests' names")
    parser.add_argument("--seconds", type=int, default=300, help="the longest that one test may take")
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start is not None:
        return work(given)
    counts, why = Counter(), Counter()
    began = time.time()
    for name, found, reason in follow(given):
        known = next((sentence for start, sentence in KNOWN.items() if name.startswith(start)), None)
        if found == "failed" and known:
            found, reason = "cannot pass", known
        counts[found] += 1
        if found in ("failed", "cannot pass"):
            print(f"{found} {name}: {' '.join(reason.split())[:400]}", flush=True)
        elif found == "skipped":
            why[reason] += 1
    for reason, number in why.most_common():
        print(f"skipped {number}: {reason}")
    told = ", ".join(f"{counts[found]} {found}" for found in ("passed", "failed", "cannot pass", "skipped"))
    print(f"{given.backend}, {given.size} ranks: {told}; {time.time() - began:.0f} s")
    sys.exit(bool(counts["failed"]))


if __name__ == "__main__":
    main()
