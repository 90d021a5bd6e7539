"""The plugin, in a pytest of its own: GPUs as marked, tests on ranks; nothing is left, not even by failed tests."""

import subprocess
import sys

import pytest

import simgpu

pytest_plugins = ["pytester"]
IMPORTS = "import pytest, torch\nimport torch.distributed as dist\nimport simgpu\n"


@pytest.fixture(scope="module")
def loaded():
    """Load all that is loaded late: what a pytest inside this process imports, it takes away again."""
    simgpu.enable(1)
    simgpu.spawn(int)
    simgpu.disable()


@pytest.fixture
def run(loaded, pytester, monkeypatch):
    """A function that runs tests with the plugin alone."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(source, process=False):
        pytester.makepyfile(IMPORTS + source)
        start = pytester.runpytest_subprocess if process else pytester.runpytest_inprocess
        return start("-q", "-p", "simgpu.pytest_plugin", "--strict-markers")

    yield run
    assert not simgpu.is_enabled()


def test_gpus_are_as_the_marker_says_and_gone_afterwards(run):
    run("""
def test_two(sim_gpus):
    assert sim_gpus == [torch.device("sim:0"), torch.device("sim:1")]
    assert torch.accelerator.current_accelerator().type == "sim" or torch.cuda.is_available()

def test_none():
    assert not simgpu.is_enabled()

@pytest.mark.sim_gpus(3, gpu="V100-SXM2-16GB", memory=4096)
def test_marked():
    assert simgpu.machine().gpu.name == "V100-SXM2-16GB" and torch.sim.device_count() == 3
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(2048, device="sim:2")

@pytest.mark.sim_gpus(2)
class TestOfAClass:
    def test_method(self, sim_gpus):
        assert len(sim_gpus) == 2
""").assert_outcomes(passed=4)


def test_what_fails_on_a_rank_fails_and_says_what(run):
    done = run("""
@pytest.mark.sim_ranks(2)
def test_value():
    assert dist.get_rank() == 0

@pytest.mark.sim_ranks(2)
def test_deadlock():
    if dist.get_rank() == 0:
        dist.barrier()
""")
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*assert 1 == 0*", "*DeadlockError*not called by rank 1*"])


def test_fixtures_and_parameters_on_gpus_and_on_ranks(run):
    run("""
@pytest.fixture
def model(sim_gpus):
    return torch.nn.Linear(2, 1).to(sim_gpus[1])

@pytest.mark.parametrize("rows", [1, 2])
def test_model(model, rows):
    assert model(torch.ones(rows, 2, device="sim:1")).shape == (rows, 1)

@pytest.mark.sim_ranks(3)
@pytest.mark.parametrize("start", [1.0, 2.0])
def test_sum(start, tmp_path):
    x = torch.full((2,), start + dist.get_rank(), device="sim")
    dist.all_reduce(x)
    assert x.tolist() == [3 * start + 3] * 2
    (tmp_path / str(dist.get_rank())).touch()
    dist.barrier()
    assert len(list(tmp_path.iterdir())) == 3
""").assert_outcomes(passed=4)


def test_ranks_skip_a_test_and_do_not_pass_what_they_cannot_run(run):
    done = run("""
import unittest

@pytest.mark.sim_ranks(2)
def test_skipped():
    if dist.get_rank():
        pytest.skip("not today")
    dist.barrier()

@pytest.mark.sim_ranks(2)
async def test_awaited():
    assert False

@pytest.mark.sim_ranks(2)
class TestOfUnittest(unittest.TestCase):
    def test_method(self):
        pass

@pytest.mark.sim_gpus(4)
@pytest.mark.sim_ranks(2)
def test_of_both_markers():
    pass
""")
    done.assert_outcomes(skipped=1, errors=3)
    done.stdout.fnmatch_lines(["*call simgpu.spawn inside the test*", "*one of the markers*got both*"])


@pytest.mark.process
def test_failed_tests_leave_nothing_and_who_keeps_a_tensor_is_told(run):  # in this process pytester keeps the errors
    done = run(
        """
kept = []

@pytest.mark.sim_gpus(4)
def test_fails():
    kept = torch.ones(1024, device="sim:3")
    itself = [kept]
    itself.append(itself)
    assert kept.sum() == 0

@pytest.mark.sim_ranks(4)
def test_fails_on_ranks():
    kept = torch.ones(1024, device="sim")
    assert kept.sum() == 0

@pytest.mark.sim_gpus(1)
def test_next():
    assert torch.sim.memory_allocated() == 0

def test_keeps(sim_gpus):
    kept.append(torch.ones(3, device="sim:1"))

def test_lets_go():
    kept.clear()
    simgpu.disable()
""",
        process=True,
    )
    done.assert_outcomes(failed=2, passed=3, errors=1)
    done.stdout.fnmatch_lines(["*delete them first*"])


@pytest.mark.process
def test_loading_the_plugin_loads_no_torch():
    code = "import sys, simgpu.pytest_plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
