"""Programs of other people's trainers under `simgpu run`: the same losses as on real processes of gloo's.

Tried with accelerate 1.15.0, lightning 2.6.6, transformers 5.24.0 and peft 0.21.2, beside torch 2.13.0.
"""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.outside
PROGRAMS = Path(__file__).parent / "programs"
TOLD = re.compile(r"(?m)^(?:\[rank\d\]: )?((?:epoch|step|accuracy|saved|rank) .*)$")


def told(module, program, folder, *options):
    """Return the lines of a program on two processes, in the order of the alphabet: words and numbers."""
    command = [
        sys.executable,
        "-m",
        *module.split(),
        "--nproc-per-node=2",
        PROGRAMS / f"{program}.py",
        folder,
        *options,
    ]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.curdir,
        "PYTHONUNBUFFERED": "",
    }
    if "simgpu" not in module:
        environment["ACCELERATE_USE_CPU"] = "true"
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return sorted(line.split() for line in TOLD.findall(ended.stdout.replace("rank 1", "\nrank 1")))


@cache
def real(program, *options):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return told("torch.distributed.run --standalone", program, folder, *options)


def compare(lines, expected, tolerance=2e-4):
    assert len(expected) > 8
    assert len(lines) == len(expected)
    for line, right in zip(lines, expected, strict=True):
        assert len(line) == len(right), (line, right)
        for word, other in zip(line, right, strict=True):
            if re.fullmatch(r"-?\d+\.\d+", other):
                assert float(word) == pytest.approx(float(other), rel=tolerance, abs=tolerance)
            else:
                assert word == other


@pytest.mark.parametrize(
    ("program", "options", "as_in"),
    [
        ("with_accelerate", (), ()),
        ("with_accelerate", ("--fsdp=1",), ()),
        ("with_accelerate", ("--fsdp=2",), ()),
        ("with_lightning", (), ()),
        ("with_lightning", ("--strategy=fsdp",), ("--no-clipping",)),
        ("with_trainer", (), ()),
        ("with_trainer", ("--adapters",), ("--adapters",)),
        ("with_trainer", ("--fsdp=full_shard",), ()),
    ],
)
def test_the_losses_are_those_of_real_processes(program, options, as_in, tmp_path):
    compare(told("simgpu run", program, tmp_path, *options), real(program, *as_in))


@pytest.mark.parametrize(
    ("program", "option"),
    [("with_accelerate", "--precision=fp16"), ("with_lightning", "--precision=bf16-mixed"), ("with_trainer", "--bf16")],
)
def test_half_precision_is_close(program, option, tmp_path):
    lines, expected = told("simgpu run", program, tmp_path, option), real(program)
    losses = [[line[line.index("loss") + 1] for line in found if "loss" in line] for found in (lines, expected)]
    assert len(losses[1]) >= 8
    assert list(map(float, losses[0])) == pytest.approx(list(map(float, losses[1])), rel=0.03)
