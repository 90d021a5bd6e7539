"""A test that one of its ranks skips, and three that ranks cannot run: async, of a TestCase, with both markers."""

import unittest

import pytest
import torch.distributed as dist


@pytest.mark.sim_ranks(2)
def test_skipped():
    if dist.get_rank():
        pytest.skip("not today")
    dist.barrier()


@pytest.mark.sim_ranks(2)
async def test_awaited():
    pytest.fail("nobody awaits it")


@pytest.mark.sim_ranks(2)
class TestOfUnittest(unittest.TestCase):
    def test_method(self):
        pass


@pytest.mark.sim_gpus(4)
@pytest.mark.sim_ranks(2)
def test_of_both_markers():
    pass
