"""What does not fit together is told at once, in one line, with what each rank waits for."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel

from d2lmini import sim
from d2lmini.sim import DeadlockError, MismatchError, RankError

pytestmark = pytest.mark.usefixtures("gpus")


def tensor(*shape, dtype=None):
    return torch.zeros(*shape, dtype=dtype, device="sim")


def failing(kind, run, *words):
    with pytest.raises(kind) as caught:
        sim.spawn(run)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_a_collective_that_some_ranks_call():
    def run(rank):
        dist.all_reduce(tensor(2))
        if rank != 2:
            dist.all_reduce(tensor(2))

    failing(DeadlockError, run, "ranks 0, 1, 3", "all_reduce #2 of the default group", "rank 2 returned",
            "in run, line")  # fmt: skip


def test_ranks_that_receive_from_one_another():
    def run(rank):
        dist.recv(tensor(2), (rank + 1) % 4)
        dist.send(tensor(2), (rank - 1) % 4)

    failing(DeadlockError, run, "rank 0 in recv", "not called by rank 1", "rank 3 in recv", "not called by rank 0")


def test_ranks_that_send_to_one_another_before_they_receive():
    def run(rank):
        dist.send(tensor(2), rank ^ 1)
        dist.recv(tensor(2), rank ^ 1)

    failing(DeadlockError, run, "rank 0 in send", "rank 1 in send")


def test_messages_with_other_tags():
    def run(rank):
        if rank < 2:
            (dist.send if rank else dist.recv)(tensor(2), 1 - rank, tag=3 + rank)

    failing(DeadlockError, run, "rank 0 in recv with tag 3", "rank 1 in send with tag 4")


def test_two_groups_in_another_order():
    def run(rank):
        first, second = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1])
        for group in {0: [first, second], 1: [second, first]}.get(rank, [first]):
            dist.all_reduce(tensor(1), group=group)

    failing(DeadlockError, run, "ranks 0, 2, 3 in all_reduce #1 of group [0, 1, 2, 3]", "rank 1 in all_reduce #1 of",
            "group [0, 1] (in run")  # fmt: skip


def test_what_nobody_waited_for_is_found_at_the_end():
    def run(rank):
        if rank == 1:
            dist.isend(tensor(2), 0)

    failing(DeadlockError, run, "returned", "rank 1 in send", "not called by rank 0")


def test_monitored_barrier_names_who_is_missing():
    failing(DeadlockError, lambda rank: rank != 3 and dist.monitored_barrier(), "monitored_barrier", "by rank 3")


@pytest.mark.parametrize(("calls", "words"), [
    ((lambda: dist.all_reduce(tensor(2)), lambda: dist.all_reduce(tensor(3))), ("shape", "[2]", "[3]")),
    ((lambda: dist.all_reduce(tensor(2)), lambda: dist.all_reduce(tensor(2).long())), ("type", "int64", "float32")),
    ((lambda: dist.all_reduce(tensor(2)), lambda: dist.broadcast(tensor(2), 0)), ("#1", "all_reduce", "broadcast")),
    ((lambda: dist.all_reduce(tensor(2)), lambda: dist.all_reduce(tensor(2), dist.ReduceOp.MAX)), ("sum", "max")),
    ((lambda: dist.broadcast(tensor(2), 0), lambda: dist.broadcast(tensor(2), 1)), ("root", "0", "1")),
    ((lambda: dist.all_gather([tensor(2) for _ in range(4)], tensor(2)),
      lambda: dist.all_gather([tensor(2) for _ in range(4)], tensor(3))), ("expects", "[2]", "[3]")),
    ((lambda: dist.barrier(), lambda: dist.all_reduce(tensor(2))), ("barrier", "all_reduce")),
    ((lambda: dist.all_to_all_single(tensor(4), tensor(4)),
      lambda: dist.all_to_all_single(tensor(5), tensor(4), [1, 1, 1, 2], [1, 1, 1, 1])), ("all_to_all", "rank 3")),
])  # fmt: skip
def test_calls_that_differ(calls, words):
    def run(rank):
        calls[rank == 3]()

    failing(MismatchError, run, "rank 3", *words)


def test_messages_that_differ():
    def run(rank):
        if rank == 0:
            dist.send(tensor(2), 1)
        elif rank == 1:
            dist.recv(tensor(3), 0)

    failing(MismatchError, run, "rank 1 expects", "[3]", "rank 0", "[2]")


def test_wrong_arguments_are_told_by_the_rank_that_gives_them():
    def lists(rank):
        dist.all_gather([tensor(1)] * 3, tensor(1))

    def shares(rank):
        dist.reduce_scatter_tensor(tensor(1), tensor(5))

    def device(rank):
        dist.all_reduce(torch.zeros(1, device="sim:0"))

    def floats(rank):
        dist.all_reduce(tensor(1), dist.ReduceOp.BAND)

    def peers(rank):
        dist.recv(tensor(1), 4)

    failing(RuntimeError, peers, "rank 0 of 4", "ValueError", "4 ranks", "got 4")
    failing(RuntimeError, lists, "rank 0 of 4", "ValueError", "list of 4")
    failing(RuntimeError, shares, "rank 0 of 4", "ValueError", "share")
    failing(RuntimeError, device, "rank 1 of 4", "ValueError", "sim:1", "sim:0")
    failing(RuntimeError, floats, "rank 0 of 4", "integers")


def _profiled():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        dist.barrier()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("call", "word"), [
    (lambda: torch.distributed.rpc.init_rpc(f"worker{dist.get_rank()}", world_size=4), "remote procedure"),
    (lambda: FullyShardedDataParallel(torch.nn.Linear(2, 2), cpu_offload=CPUOffload(True)), "CPUOffloadPolicy"),
    (_profiled, "one rank that profiles"),
])  # fmt: skip
def test_what_ranks_cannot_do_is_refused_at_once(call, word):
    with pytest.raises(RankError, match=word):
        sim.spawn(lambda rank: call())
