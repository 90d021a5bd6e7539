"""What callers may give as numbers and names, and the one line that refuses the rest."""

import math

import numpy as np
import pytest
import torch

import simgpu
from simgpu.hardware import MACHINES, build, cluster
from simgpu.hardware.arguments import find, not_negative, whole
from simgpu.hardware.collective_costs import estimate
from simgpu.hardware.links import LINKS
from simgpu.hardware.op_costs import copy_seconds, operation_seconds

NODE, GPU = MACHINES["DGX-A100"], MACHINES["DGX-A100"].gpu
NO_NUMBER = [math.nan, math.inf, -math.inf, -1]
NOT_WHOLE = [True, 2.0, math.nan, -1, 0, "2", None, [2]]


@pytest.mark.parametrize("given", [3, np.int64(3), np.uint8(3), torch.tensor(3)])
def test_integers_of_other_libraries_are_whole(given):
    assert whole("the number", given, 1, 3) == 3


@pytest.mark.parametrize("given", [*NOT_WHOLE, 4])
def test_what_is_not_whole_or_outside_is_refused(given):
    with pytest.raises(ValueError, match="the number must be a whole number from 1 to 3"):
        whole("the number", given, 1, 3)


@pytest.mark.parametrize("given", [0, 0.5, 10**30])
def test_finite_numbers_pass(given):
    assert not_negative("the number", given) is None


@pytest.mark.parametrize("given", NO_NUMBER)
@pytest.mark.parametrize(
    "call",
    [
        lambda x: not_negative("it", x),
        lambda x: operation_seconds(x, 0, GPU, "gemm"),
        lambda x: operation_seconds(0, x, GPU, "pointwise"),
        lambda x: copy_seconds(x, LINKS["PCIe4-x16"]),
        lambda x: estimate("all_reduce", NODE, 8, x),
        lambda x: simgpu.Clock(NODE).advance(x),
        lambda x: simgpu.Clock(NODE).beside(1, x, "reading"),
    ],
    ids=["not_negative", "flops", "bytes", "copy", "collective", "advance", "beside"],
)
def test_numbers_that_are_none_and_negative_ones_are_refused(call, given):
    with pytest.raises(ValueError, match="finite"):
        call(given)


@pytest.mark.parametrize("given", NOT_WHOLE)
@pytest.mark.parametrize(
    "call",
    [
        lambda x: build(x, "V100-SXM2-16GB"),
        lambda x: cluster(NODE, x),
        lambda x: LINKS["NVLink3"].times(x),
        lambda x: estimate("all_reduce", NODE, x, 1) if not isinstance(x, list) else whole("it", x, 1),
        lambda x: simgpu.enable(x) if x is not None else whole("it", x, 1),
        lambda x: simgpu.enable(1, memory=-1 if x in (0, None) else x),
        lambda x: simgpu.spawn(print, nprocs=x) if x is not None else whole("it", x, 1),
    ],
    ids=["build", "cluster", "times", "collective", "enable", "memory", "nprocs"],
)
def test_counts_are_whole(call, given):
    with pytest.raises(ValueError, match="whole number"):
        call(given)


@pytest.mark.parametrize("given", ["DGX-A10", 3, None, ["DGX-A100"]])
def test_a_name_that_is_not_there_is_told_with_those_that_are(given):
    with pytest.raises(ValueError, match=r"unknown machine .*: choose one of .*DGX-A100"):
        find(MACHINES, given, "machine")


def test_a_machine_beyond_torchs_numbers_is_refused():
    with pytest.raises(ValueError, match="at most 128"):
        simgpu.enable(machine=build(129, "V100-SXM2-16GB"))
