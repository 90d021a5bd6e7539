"""What does not fit together is told at once, in one line, with what each rank waits for."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
from torch.distributed.tensor import zeros
from torch.nn.parallel.distributed import DistributedDataParallel

import simgpu
from simgpu import DeadlockError, MismatchError, RankError
from simgpu.testing import replicas_equal

pytestmark = pytest.mark.usefixtures("gpus")


def tensor(*shape, dtype=None):
    return torch.zeros(*shape, dtype=dtype, device="sim")


def failing(kind, run, *words):
    with pytest.raises(kind) as caught:
        simgpu.spawn(run)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def coalesced(dtype):
    with dist._coalescing_manager(device=torch.device("sim", dist.get_rank())):
        dist.all_reduce(tensor(2))
        dist.all_reduce(tensor(2, dtype=dtype))


def once_more_but_for_rank_2(rank):
    for _ in range(1 + (rank != 2)):
        dist.all_reduce(tensor(2))


def two_groups_in_another_order(rank):
    first, second = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1])
    for group in {0: [first, second], 1: [second, first]}.get(rank, [first]):
        dist.all_reduce(tensor(1), group=group)


def one_more_step_on_rank_0(rank):
    model = DistributedDataParallel(torch.nn.Linear(2, 2).to("sim"))
    for _ in range(1 + (rank == 0)):
        model(tensor(2, 2)).sum().backward()


def caught(*calls):
    """Return a program that goes on after an error: rank 0 makes the first call, the others the second."""

    def run(rank):
        with contextlib.suppress(MismatchError):
            calls[rank > 0]()

    return run


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            once_more_but_for_rank_2,
            (
                "ranks 0, 1, 3",
                "all_reduce #2 of the default group",
                "rank 2 returned",
                "in once_more_but_for_rank_2, test_diagnosis.py:",
            ),
        ),
        (
            lambda rank: (dist.recv(tensor(2), (rank + 1) % 4), dist.send(tensor(2), (rank - 1) % 4)),
            ("rank 0 in recv", "not called by rank 1", "rank 3 in recv", "not called by rank 0"),
        ),
        (
            lambda rank: (dist.send(tensor(2), rank ^ 1), dist.recv(tensor(2), rank ^ 1)),
            ("rank 0 in send", "rank 1 in send"),
        ),
        (
            lambda rank: rank < 2 and (dist.send if rank else dist.recv)(tensor(2), 1 - rank, tag=3 + rank),
            ("rank 0 in recv with tag 3", "rank 1 in send with tag 4"),
        ),
        (
            two_groups_in_another_order,
            (
                "ranks 0, 2, 3 in all_reduce #1 of group [0, 1, 2, 3]",
                "rank 1 in all_reduce #1 of",
                "group [0, 1] made in two_groups",
            ),
        ),
        (lambda rank: rank == 1 and dist.isend(tensor(2), 0), ("returned", "rank 1 in send", "not called by rank 0")),
        (
            lambda rank: rank != 3 and dist.distributed_c10d._get_default_store().get("word"),
            ("ranks 0, 1, 2 in store.wait for", "word (in", "which no rank sets", "rank 3 returned"),
        ),
        (lambda rank: rank != 3 and dist.monitored_barrier(), ("monitored_barrier", "by rank 3")),
        (one_more_step_on_rank_0, ("in one_more_step_on_rank_0, test_diagnosis.py:", "not called by ranks 1, 2, 3")),
        (
            caught(lambda: dist.all_reduce(tensor(2)), lambda: dist.all_reduce(tensor(3))),
            ("rank 0 in all_reduce #1 of the default group", "which failed", "rank 1 has shapes [[3]]"),
        ),
        (
            caught(
                lambda: dist.all_to_all_single(tensor(4), tensor(4)),
                lambda: dist.all_to_all_single(tensor(5), tensor(5), [2, 1, 1, 1], [2, 1, 1, 1]),
            ),
            ("rank 0", "ranks 1, 2 in all_to_all #1", "which failed", "expects float32 [1]"),
        ),
        (
            lambda rank: rank < 2 and caught(lambda: dist.send(tensor(2), 1), lambda: dist.recv(tensor(3), 0))(rank),
            ("rank 0 in send", "which failed", "rank 1 expects float32 [3]"),
        ),
    ],
    ids=[
        "not called by one",
        "all receive",
        "all send",
        "other tags",
        "groups in another order",
        "waited for by nobody",
        "in the store",
        "monitored_barrier",
        "in backward",
        "went on without fitting",
        "went on with other sizes",
        "went on after a message",
    ],
)
def test_ranks_that_wait_for_ever_are_named_with_what_they_wait_for(run, words):
    failing(DeadlockError, run, *words)


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ((lambda: dist.all_reduce(tensor(2)), lambda: dist.all_reduce(tensor(3))), ("shape", "[2]", "[3]")),
        ((lambda: dist.all_reduce(tensor(2)), lambda: dist.all_reduce(tensor(2).long())), ("type", "int64", "float32")),
        ((lambda: coalesced(torch.float32), lambda: coalesced(torch.int32)), ("type ['float32', 'int32']", "float32")),
        ((lambda: dist.all_reduce(tensor(2)), lambda: dist.broadcast(tensor(2), 0)), ("#1", "all_reduce", "broadcast")),
        ((lambda: dist.all_reduce(tensor(2)), lambda: dist.all_reduce(tensor(2), dist.ReduceOp.MAX)), ("sum", "max")),
        ((lambda: dist.broadcast(tensor(2), 0), lambda: dist.broadcast(tensor(2), 1)), ("root", "0", "1")),
        (
            (
                lambda: dist.all_gather([tensor(2) for _ in range(4)], tensor(2)),
                lambda: dist.all_gather([tensor(2) for _ in range(4)], tensor(3)),
            ),
            ("expects", "[2]", "[3]"),
        ),
        (
            (lambda: dist.all_reduce(torch.zeros(2)), lambda: dist.all_reduce(tensor(2))),
            ("device sim", "rank 0 has cpu"),
        ),
        ((lambda: dist.barrier(), lambda: dist.all_reduce(tensor(2))), ("barrier", "all_reduce")),
        (
            (
                lambda: dist.all_to_all_single(tensor(4), tensor(4)),
                lambda: dist.all_to_all_single(tensor(5), tensor(4), [1, 1, 1, 2], [1, 1, 1, 1]),
            ),
            ("all_to_all", "rank 3"),
        ),
    ],
)
def test_calls_that_differ(calls, words):
    def run(rank):
        calls[rank == 3]()

    failing(MismatchError, run, "rank 3", *words)


def test_a_group_that_some_ranks_alone_make():
    def used(rank):
        for ranks in [[0, 1], [1, 2]][rank == 2 :]:
            group = dist.new_group(ranks)
        dist.all_reduce(tensor(1), group=group)

    failing(DeadlockError, used, "new_group #2", "was not called by rank 2")
    failing(
        MismatchError,
        lambda rank: rank != 2 and dist.new_group([0, 1]) and None,
        "new_group #1, for ranks [0, 1], was not called by rank 2",
    )
    failing(
        DeadlockError,
        lambda rank: dist.barrier(None if rank == 2 else dist.new_group([0, 3])),
        "new_group #1, for ranks [0, 3], was not called by rank 2",
    )


def test_messages_that_differ():
    calls = {0: lambda: dist.send(tensor(2), 1), 1: lambda: dist.recv(tensor(3), 0)}
    failing(MismatchError, lambda rank: calls.get(rank, bool)(), "rank 1 expects", "[3]", "rank 0", "[2]")


def beside(call, *args):
    """Call in a thread of the rank's own."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call, *args).result()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dist.recv(tensor(1), 4), ("rank 0 of 4", "ValueError", "4 ranks", "got 4")),
        (lambda: dist.all_gather([tensor(1)] * 3, tensor(1)), ("rank 0 of 4", "ValueError", "list of 4")),
        (lambda: dist.reduce_scatter_tensor(tensor(1), tensor(5)), ("rank 0 of 4", "ValueError", "world size")),
        (lambda: dist.all_reduce(torch.zeros(1, device="sim:0")), ("rank 1 of 4", "Duplicate GPU", "rank 0", "sim:0")),
        (lambda: dist.all_gather([torch.zeros(1)] * 4, tensor(1)), ("rank 0 of 4", "ValueError", "sim:0", "cpu")),
        (
            lambda: dist.all_to_all_single(tensor(1).sum(), tensor(1).sum()),
            ("rank 0 of 4", "ValueError", "got shape []"),
        ),
        (lambda: dist.all_reduce(tensor(1), dist.ReduceOp.BAND), ("rank 0 of 4", "integers")),
        (lambda: dist.all_reduce(zeros(4, device_mesh=init_device_mesh("sim", (4,)))), ("own tensor", "DTensor")),
        (lambda: torch.distributed.rpc.init_rpc(f"worker{dist.get_rank()}", world_size=4), ("remote procedure",)),
        (lambda: FullyShardedDataParallel(torch.nn.Linear(2, 2), cpu_offload=CPUOffload(True)), ("CPUOffloadPolicy",)),
        (lambda: beside(dist.all_reduce, tensor(1)), ("all_reduce", "thread of rank 0")),
        (lambda: beside(dist.all_reduce(tensor(1), async_op=True).wait), ("all_reduce #1", "thread of rank 0")),
    ],
)
def test_what_is_wrong_or_cannot_be_is_told_by_the_rank_that_does_it(call, words):
    failing(RankError, lambda rank: call(), *words)


def test_each_ranks_line_and_where_a_group_was_made_are_told():
    def other_shapes(rank):
        group = dist.new_group([0, 1])
        if rank == 0:
            dist.all_reduce(tensor(2), group=group)
        if rank == 1:
            dist.all_reduce(tensor(3), group=group)

    here = other_shapes.__code__.co_firstlineno
    failing(MismatchError, other_shapes, *(f"test_diagnosis.py:{here + line}" for line in (1, 3, 5)))


def test_groups_of_equal_ranks_are_told_apart():
    def twice(rank):
        first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
        if rank < 2:
            dist.all_reduce(tensor(1), group=[first, second][rank])

    failing(DeadlockError, twice, "rank 0 in all_reduce #1 of group [0, 1] made", "rank 1 in all_reduce #1")

    def at_once(rank):
        works = [dist.all_reduce(tensor(10**7), group=group, async_op=True) for group in groups(rank)]
        for work in works:
            work.wait()

    def groups(rank):
        return [dist.new_group(list(range(4))) for _ in range(2)]

    with simgpu.trace() as trace:
        simgpu.spawn(at_once)
    rows = {(span.place, span.row) for span in trace.spans if span.kind == "communication"}
    assert len(rows) == 2 * 4  # each group has a stream of its own on each GPU


@pytest.mark.parametrize("fault", ["weights", "a gradient", None])
def test_replicas_that_differ_are_found(fault):
    def train(rank):
        torch.manual_seed(rank if fault == "weights" else 0)
        net = torch.nn.Linear(3, 2).to("sim")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        other = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        with replicas_equal(net):
            for step in range(3):
                net(torch.ones(1, 3, device="sim") * (rank + 1)).sum().backward()
                for parameter in net.parameters():
                    if not (fault == "a gradient" and parameter is net.weight and step == 1):
                        dist.all_reduce(parameter.grad)
                optimizer.step()
                other.step()
                optimizer.zero_grad()
        return simgpu.now()

    if fault is None:
        assert len(set(simgpu.spawn(train))) == 1
    else:
        failing(
            RankError, train, "AssertionError", "replicas differ", "on rank 1 is off", "in train, test_diagnosis.py"
        )


def test_a_bucket_of_ddp_is_told_by_its_parameters():
    def step_on_rank_0(rank):
        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)).to("sim")
        net = DistributedDataParallel(net)
        loss = net(torch.ones(1, 2, device="sim")).sum()
        if rank == 0:
            loss.backward()

    failing(DeadlockError, step_on_rank_0, "rank 0 in all_reduce", "DDP's bucket of 0.weight, 0.bias", "step_on_rank_0")
