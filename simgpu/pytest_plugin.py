"""The pytest plugin: simulated GPUs for the time of one test, and tests that run on simulated ranks."""

import inspect
import sys
import unittest
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

_MARKERS = [
    "sim_gpus(gpus=2, gpu=..., machine=..., memory=..., ...): run the test with simulated GPUs; takes what "
    "simgpu.enable takes",
    "sim_ranks(gpus=2, ...): the same, and run the test on one simulated rank for each GPU, all at once",
]


def pytest_configure(config: pytest.Config) -> None:
    """Make the two markers known."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)


@pytest.fixture
def sim_gpus(request: pytest.FixtureRequest) -> "Iterator[list[torch.device]]":
    """Simulated GPUs for the time of a test, as a list of torch.device, made as the test's marker says.

    Afterwards they are gone, and with them what a failed test's frames hold there; who keeps a tensor elsewhere, in a
    global or a fixture of a longer life, gets the RuntimeError of `simgpu.disable`.
    """
    import torch

    import simgpu
    from simgpu.device import api

    given = _marker(request.node)
    simgpu.enable(*(given.args if given else ()), **(given.kwargs if given else {}))
    yield [torch.device("sim", i) for i in range(api.device_count())]
    for name in ("last_value", "last_traceback", "last_exc"):  # a failed test's error, which pytest puts there
        setattr(sys, name, None)
    request.node.funcargs.clear()  # what other fixtures made on the GPUs for this test
    simgpu.disable()


@pytest.fixture(autouse=True)
def _sim_gpus_of_a_marked_test(request: pytest.FixtureRequest) -> None:
    if {marker.name for marker in request.node.iter_markers()}.issuperset(("sim_gpus", "sim_ranks")):
        pytest.fail(
            "expected one of the markers sim_gpus and sim_ranks, got both: sim_ranks makes the GPUs too", pytrace=False
        )
    if request.node.get_closest_marker("sim_ranks") and not _runs_on_ranks(request):
        pytest.fail(
            "sim_ranks runs plain functions and methods on ranks, neither async ones nor those of a "
            "unittest.TestCase: call simgpu.spawn inside the test",
            pytrace=False,
        )
    if _marker(request.node):
        request.getfixturevalue("sim_gpus")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked ``sim_ranks`` on every rank; one that skips it skips it for all."""
    if pyfuncitem.get_closest_marker("sim_ranks") is None:
        return None
    import simgpu

    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    try:
        simgpu.spawn(lambda rank: pyfuncitem.obj(**given))
    except simgpu.RankError as error:
        if isinstance(error.__cause__, _OUTCOMES):
            raise error.__cause__ from None
        raise
    return True


_OUTCOMES = pytest.skip.Exception, pytest.xfail.Exception, pytest.fail.Exception


def _runs_on_ranks(request: pytest.FixtureRequest) -> bool:
    in_unittest = request.cls is not None and issubclass(request.cls, unittest.TestCase)
    return not in_unittest and not inspect.iscoroutinefunction(request.function)


def _marker(node: pytest.Item) -> pytest.Mark | None:
    return node.get_closest_marker("sim_ranks") or node.get_closest_marker("sim_gpus")
