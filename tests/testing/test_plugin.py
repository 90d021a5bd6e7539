"""The plugin, in a pytest of its own: GPUs as marked, tests on ranks; nothing is left, not even by failed tests."""

import subprocess
import sys
from pathlib import Path

import pytest

import simgpu

pytest_plugins = ["pytester"]
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def loaded():
    """Load all that is loaded late: what a pytest inside this process imports, it takes away again."""
    simgpu.enable(1)
    simgpu.spawn(int)
    simgpu.disable()


@pytest.fixture
def run(loaded, pytester, monkeypatch):
    """A function that runs the tests of a file in programs/ with the plugin alone."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(name, process=False):
        pytester.makepyfile((PROGRAMS / f"{name}.py").read_text(encoding="utf-8"))
        start = pytester.runpytest_subprocess if process else pytester.runpytest_inprocess
        return start("-q", "-p", "simgpu.pytest_plugin", "--strict-markers")

    yield run
    assert not simgpu.is_enabled()


def test_gpus_are_as_the_marker_says_and_gone_afterwards(run):
    run("marked_gpus").assert_outcomes(passed=4)


def test_what_fails_on_a_rank_fails_and_says_what(run):
    done = run("failing_on_ranks")
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*assert 1 == 0*", "*DeadlockError*not called by rank 1*"])


def test_fixtures_and_parameters_on_gpus_and_on_ranks(run):
    run("fixtures_and_parameters").assert_outcomes(passed=4)


def test_ranks_skip_a_test_and_do_not_pass_what_they_cannot_run(run):
    done = run("not_for_ranks")
    done.assert_outcomes(skipped=1, errors=3)
    done.stdout.fnmatch_lines(["*call simgpu.spawn inside the test*", "*one of the markers*got both*"])


@pytest.mark.process
def test_failed_tests_leave_nothing_and_who_keeps_a_tensor_is_told(run):  # in this process pytester keeps the errors
    done = run("kept_tensors", process=True)
    done.assert_outcomes(failed=2, passed=3, errors=1)
    done.stdout.fnmatch_lines(["*delete them first*"])


@pytest.mark.process
def test_loading_the_plugin_loads_no_torch():
    code = "import sys, simgpu.pytest_plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
