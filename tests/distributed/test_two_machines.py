"""Two network namespaces as two machines: a run started again on both, and nothing left; a chapter runs the tool."""

import subprocess
from pathlib import Path

import failing_rank
import pytest
import torch
import two_machines

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", autouse=True)
def allowed():
    """Skip where the system does not let us make namespaces and cables."""
    try:
        with two_machines.TwoMachines():
            pass
    except two_machines.Missing as error:
        pytest.skip(f"no two machines here: {error}")


def namespaces():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


@pytest.mark.long
def test_when_a_rank_is_killed_both_machines_start_again_from_the_checkpoint(tmp_path):
    words = ["--batch-size", "50", "--epochs", "2", "--checkpoint"]
    program, folder = [Path(failing_rank.__file__), 1, "is killed,goes on"], tmp_path / "shared"
    folder.mkdir()
    with two_machines.TwoMachines() as machines:
        run = [machines.start(i, [*words, folder / "c.pt", "--resume"], program, ["--max-restarts=2"]) for i in (0, 1)]
        said = [process.communicate(timeout=200)[0] for process in run]
    assert [process.returncode for process in run] == [0, 0], said
    assert "exitcode: -9" in said[1]
    assert "starting from the beginning" in said[0]
    assert said[0].count("LeNet, 129,068 parameters, on cpu, cpu (ddp over gloo)") == 2
    one, two = failing_rank.in_one_process([*words, tmp_path / "one.pt"]), torch.load(folder / "c.pt")
    assert all(torch.equal(one["engine"]["model"][key], p) for key, p in two["engine"]["model"].items())


def interrupted(machines, started):
    """Let something run inside that does not end, and break off."""
    started.append(subprocess.Popen(["ip", "netns", "exec", machines.names[0], "sleep", "1000"]))
    assert all(name in namespaces() for name in machines.names)
    two_machines.command("ip", "-n", machines.names[1], "route", "get", two_machines.ADDRESSES[0])
    raise KeyboardInterrupt


def test_they_are_removed_when_something_goes_wrong_inside():
    machines, started = two_machines.TwoMachines(), []
    with pytest.raises(KeyboardInterrupt), machines:
        interrupted(machines, started)
    assert started[0].wait(10) == -9
    assert not any(name in namespaces() for name in machines.names)
    assert not Path(machines.folder.name).exists()
    with pytest.raises(two_machines.Missing, match="ip netns add: "):
        two_machines.command("ip", "netns", "add")


def test_a_cable_carries_what_its_rate_says_and_a_wrong_rate_is_told():
    assert two_machines.burst("1gbit") == 625_000  # bytes of 5 ms
    assert two_machines.burst("20mbit") == 16_384
    for rate in ("100", "1.5 mbit", "fast", "100mbps"):
        with pytest.raises(ValueError, match=f"expected a rate such as 100mbit, .* got '{rate}'"):
            two_machines.TwoMachines(rate)
