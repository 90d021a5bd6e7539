"""Processes agree on a name for their attempt, whatever earlier attempts left in the store; here they are threads."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from d2lmini.distributed import rollcall


@pytest.fixture(scope="module")
def store():
    """A store such as torchrun's, which all attempts share, those of all tests here."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))


def come(store, ranks, world_size):
    """Let these ranks come, in this order; return what they call their attempt, by rank."""
    stores = {rank: store.clone() for rank in ranks}
    with ThreadPoolExecutor() as pool:
        names = {rank: pool.submit(rollcall.attempt, stores[rank], rank, world_size) for rank in ranks}
        return {rank: name.result() for rank, name in names.items()}


@pytest.mark.parametrize("order", [range(3), (2, 1, 0)], ids=["rank 0 comes first", "rank 0 comes last"])
def test_the_processes_of_an_attempt_agree_on_a_name_that_none_before_them_had(store, order):
    names = [come(store, order, 3) for _ in range(3)]
    assert all(len(set(found.values())) == 1 for found in names)
    assert len({found[0] for found in names}) == 3


def test_an_attempt_that_not_all_came_to_does_no_harm(store):
    first = come(store, [0, 2], 3)
    assert first[0] == first[2]
    store.set(f"{first[0]}/here1", "")  # so that rank 0 falls silent, as it does when its process ends
    for thread in (thread for thread in threading.enumerate() if thread.name == "roll call"):
        thread.join(10)
    second = come(store, [2, 0, 1], 3)
    assert len(set(second.values())) == 1
    assert second[0] != first[0]
    assert len(set(come(store, [0, 1], 2).values())) == 1  # fewer ranks than before


def test_one_process_alone_has_a_name_too(store):
    assert come(store, [0], 1) != come(store, [0], 1)


def test_nobody_waits_for_rank_0_for_ever(store, monkeypatch):
    come(store, [0, 1], 2)
    monkeypatch.setattr(rollcall, "WAIT_S", 0.3)
    with pytest.raises(TimeoutError, match=r"rank 0 has given no sign of life for 0\.3 s"):
        rollcall.attempt(store.clone(), 1, 2)


LEAVES = """
import sys
import time
import torch.distributed as dist
from d2lmini.distributed import rollcall

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
rollcall.LOOK_S = 0.0005  # so that rank 0 is nearly always inside torch
rollcall.attempt(store, 0, 2)
time.sleep(0.05)
sys.exit(2)
"""


def test_rank_0_may_end_while_it_still_answers():
    processes = [subprocess.Popen([sys.executable, "-c", LEAVES], stderr=subprocess.PIPE) for _ in range(4)]
    assert [(process.communicate(timeout=200)[1], process.returncode) for process in processes] == [(b"", 2)] * 4
