"""PyTorch's own table of operations on a simulated GPU: forward to the last bit, gradients within torch's tolerance."""

import random

import pytest

import simgpu


@pytest.fixture
def opinfo(gpus):
    """torch's table: importing it takes seconds, so that only who runs it does."""
    pytest.importorskip("expecttest", reason="torch's table of operations needs the package expecttest")
    return pytest.importorskip("tests.sim.opinfo" if __package__ else "opinfo")


def check(opinfo, ops, first, capsys):
    found = []
    forward, forwards, backward, backwards = opinfo.table(ops, first, found.append)
    with capsys.disabled():
        counts = f"{forward} of {forwards} operations forward, {backward} of {backwards} backward"
        print(f"\n{counts}; these differ:", *found, sep="\n  ")
    assert forwards >= 0.9 * len(ops)
    assert forward >= 0.99 * forwards
    assert backward >= 0.97 * backwards


@pytest.mark.slow
def test_a_sample_of_the_table(opinfo, capsys):
    check(opinfo, random.Random(0).sample(opinfo.operations(), 120), 1, capsys)


@pytest.mark.long
def test_the_whole_table(opinfo, capsys):
    simgpu.enable(2, memory=2**30, clock=False)
    check(opinfo, opinfo.operations(), None, capsys)
