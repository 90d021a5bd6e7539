"""Measuring in another process: what comes back, what does not hold it back, and what is told when it fails."""

import os
import pickle
import subprocess
from types import SimpleNamespace

import pytest

from d2lmini.measuring import hidden_units, unconstrained


@pytest.mark.process
def test_what_is_measured_there_comes_back_with_its_place(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    found, where = hidden_units.measured([4, 900], batch=8, steps=6)
    assert {len(m.seconds) for m in found.values()} == {6}
    assert found[4].seconds[0] < found[900].seconds[0]
    assert "1 CPU thread" in where
    assert "MKL_CBWR" not in where


@pytest.mark.parametrize("units", [1, 30])
def test_two_hidden_layers(units):
    net = hidden_units.two_hidden(units)
    assert [layer.out_features for layer in net[::2]] == [units, units, 10]
    assert sum(p.numel() for p in net.parameters()) == 785 * units + (units + 1) * units + (units + 1) * 10


def child(monkeypatch, **answer):
    """Answer in place of the child process; return a list that gets its options."""
    asked = []

    def run(command, **options):
        asked.append(options)
        if "late" in answer:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return SimpleNamespace(**{"returncode": 0, "stdout": b"", "stderr": b"", **answer})

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_the_child_is_free_of_what_holds_this_process_back(monkeypatch):
    asked = child(monkeypatch, stdout=pickle.dumps(("found", "where")))
    for name in unconstrained.CONSTRAINTS:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("KEPT", "yes")
    assert unconstrained.run_unconstrained(os.getcwd) == ("found", "where")
    environment = asked[0]["env"]
    assert not set(unconstrained.CONSTRAINTS) & set(environment)
    assert {"OMP_NUM_THREADS", "MKL_CBWR", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"} <= set(
        unconstrained.CONSTRAINTS
    )
    assert (environment["KEPT"], environment["D2LMINI_DEVICES"]) == ("yes", "cpu")
    assert os.environ["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            {"returncode": 1, "stderr": b"Traceback\n  there\nRuntimeError: no Numba\n"},
            "failed: RuntimeError: no Numba$",
        ),
        ({"returncode": -9}, "status -9"),
        ({"late": True}, "within 300 s"),
    ],
)
def test_a_failing_child_is_told_in_one_line(monkeypatch, answer, says):
    child(monkeypatch, **answer)
    with pytest.raises(RuntimeError, match=says):
        unconstrained.run_unconstrained(os.getcwd)
