"""Every collective of `torch.distributed` on simulated ranks, against formulas over what the ranks give."""

from functools import reduce

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

import simgpu

pytestmark = pytest.mark.usefixtures("gpus")
N = 4
TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
]
OTHERS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex128]


def given(rank, shape=(3, 2), dtype=torch.float32):
    """What a rank gives: numbers of its own, on the host."""
    numbers = torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(rank + 1))
    return numbers.to(dtype)


def mine(rank, *args, **kwargs):
    return given(rank, *args, **kwargs).to("sim")


def equal(got, wanted):
    assert got.device.type == "sim"
    assert got.dtype == wanted.dtype
    torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0)


def all_given(**kwargs):
    return [given(rank, **kwargs) for rank in range(N)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_reductions(dtype):
    ops = {dist.ReduceOp.SUM: torch.add}
    if not dtype.is_complex:
        ops |= {dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.PRODUCT: torch.mul}
    if not dtype.is_floating_point and not dtype.is_complex:
        ops |= {
            dist.ReduceOp.BAND: torch.bitwise_and,
            dist.ReduceOp.BOR: torch.bitwise_or,
            dist.ReduceOp.BXOR: torch.bitwise_xor,
        }
    wide = {torch.uint16: torch.int64, torch.uint32: torch.int64, torch.uint64: torch.int64}.get(dtype, dtype)

    def run(rank):
        results = []
        for op in ops:
            results.append(mine(rank, dtype=dtype))
            dist.all_reduce(results[-1], op)
        return results

    for results in simgpu.spawn(run):
        for result, fold in zip(results, ops.values(), strict=True):
            equal(result, reduce(fold, [t.to(wide) for t in all_given(dtype=dtype)]).to(dtype))


def test_unsigned_extremes_keep_their_order():
    def run(rank):
        tensor = torch.tensor([2**63 - 1 + rank, rank], dtype=torch.uint64).to("sim")
        other = tensor.clone()
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        dist.all_reduce(other, dist.ReduceOp.MIN)
        return tensor.cpu().tolist(), other.cpu().tolist()

    assert simgpu.spawn(run)[1] == ([2**63 + 2, 3], [2**63 - 1, 0])


def test_an_average_in_float16_does_not_overflow():
    """NCCL multiplies by 1/N before it sums (ncclDevPreMulSum)."""

    def run(rank):
        large = torch.tensor([40_000.0], dtype=torch.float16, device="sim")
        dist.all_reduce(large, dist.ReduceOp.AVG)
        return large.item()

    assert simgpu.spawn(run) == [40_000.0] * N


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_average_and_sum_of_multiples(dtype):
    def run(rank):
        mean, some, each = (mine(rank, dtype=dtype) for _ in range(3))
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if dtype.is_floating_point:
            dist.all_reduce(some, dist._make_nccl_premul_sum(0.5))
            dist.all_reduce(each, dist._make_nccl_premul_sum(torch.tensor([0.25 * rank], device="sim")))
        return mean, some, each

    total = sum(all_given(dtype=dtype))
    for mean, some, each in simgpu.spawn(run):
        equal(mean, total / N if dtype.is_floating_point else total // N)
        if dtype.is_floating_point:
            equal(some, total * 0.5)
            equal(each, sum(0.25 * rank * given(rank, dtype=dtype) for rank in range(N)))


@pytest.mark.parametrize("dtype", TYPES + OTHERS, ids=str)
def test_whatever_only_moves_takes_any_type(dtype):
    def run(rank):
        sent, gathered = mine(rank, dtype=dtype), [torch.empty(3, 2, dtype=dtype, device="sim") for _ in range(N)]
        dist.all_gather(gathered, sent)
        copied = mine(rank, dtype=dtype)
        dist.broadcast(copied, 2)
        return [*gathered, copied]

    for results in simgpu.spawn(run):
        for result, wanted in zip(results, [*all_given(dtype=dtype), given(2, dtype=dtype)], strict=True):
            assert result.dtype == dtype
            assert torch.equal(result.cpu().view(torch.uint8), wanted.contiguous().view(torch.uint8))


@pytest.mark.parametrize("how", ["wait", "async"])
def test_every_collective(how):
    """One after the other, so that what a wait forgets would show in the next."""

    def run(rank):
        def do(collective, *args, **kwargs):
            work = collective(*args, **kwargs, async_op=how == "async")
            assert (work is not None) == (how == "async")
            if work:
                work.wait()
                assert work.is_completed()

        new = lambda *shape: torch.zeros(*shape, device="sim")  # noqa: E731
        out = {
            "reduce": mine(rank),
            "single": new(4 * 3, 2),
            "scatter": new(3, 2),
            "shares": new(2),
            "part": new(3, 2),
            "gather": [new(3, 2) for _ in range(N)],
            "all": [new(2) for _ in range(N)],
            "blocks": new(8, 2),
        }
        do(dist.reduce, out["reduce"], 1)
        do(dist.all_gather_into_tensor, out["single"], mine(rank))
        do(dist.scatter, out["scatter"], [mine(10 + i) for i in range(N)] if rank == 3 else None, src=3)
        do(dist.gather, mine(rank), out["gather"] if rank == 2 else None, dst=2)
        do(dist.reduce_scatter_tensor, out["shares"], mine(rank, shape=(8,)))
        do(dist.reduce_scatter, out["part"], [mine(10 * rank + i) for i in range(N)])
        do(dist.all_to_all, out["all"], [mine(10 * rank + i, shape=(2,)) for i in range(N)])
        do(dist.all_to_all_single, out["blocks"], mine(rank, shape=(8, 2)))
        do(dist.barrier)
        return out

    results = simgpu.spawn(run)
    equal(results[1]["reduce"], sum(all_given()))
    equal(results[0]["reduce"], given(0))
    for rank, out in enumerate(results):
        equal(out["single"], torch.cat(all_given()))
        equal(out["scatter"], given(10 + rank))
        equal(out["shares"], sum(all_given(shape=(8,))).chunk(N)[rank])
        equal(out["part"], sum(given(10 * other + rank) for other in range(N)))
        equal(out["blocks"], torch.cat([given(other, shape=(8, 2)).chunk(N)[rank] for other in range(N)]))
        for other in range(N):
            equal(out["gather"][other], given(other) if rank == 2 else torch.zeros(3, 2))
            equal(out["all"][other], given(10 * other + rank, shape=(2,)))


def test_a_group_is_called_as_torchs_own():
    def run(rank):
        group, most, total, first = dist.group.WORLD, mine(rank), mine(rank), mine(rank)
        lists = [mine(9) for _ in range(N)], [[mine(9)] for _ in range(N)]
        group.allreduce([most], op=dist.ReduceOp.MAX).wait()
        group.reduce(total, root=1).wait()
        group.broadcast(first, 2).wait()
        group.allgather(lists[0], mine(rank)).wait()
        dist.all_gather_coalesced(lists[1], [mine(rank)])
        assert not group._get_backend(most.device).supports_tensor_alloc(most.device)
        with simgpu.as_cuda():
            assert dist.get_backend() == "nccl"
        return most, first, total, *lists[0], *(some for (some,) in lists[1])

    for rank, (most, first, total, *gathered) in enumerate(simgpu.spawn(run)):
        equal(most, reduce(torch.maximum, all_given()))
        equal(first, given(2))
        equal(total, sum(all_given()) if rank == 1 else given(rank))
        for got, wanted in zip(gathered, all_given() * 2, strict=True):
            equal(got, wanted)


def test_all_to_all_of_uneven_parts():
    sizes = [[0, 1, 2, 3], [3, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 2]]  # from, to

    def run(rank):
        out = torch.zeros(sum(row[rank] for row in sizes), 2, device="sim")
        dist.all_to_all_single(out, mine(rank, shape=(sum(sizes[rank]), 2)), [row[rank] for row in sizes], sizes[rank])
        return out

    for rank, out in enumerate(simgpu.spawn(run)):
        parts = [given(other, shape=(sum(sizes[other]), 2)).split(sizes[other])[rank] for other in range(N)]
        equal(out, torch.cat(parts))


def test_groups_have_their_own_ranks():
    def run(rank):
        even, odd = dist.new_group([0, 2]), dist.new_group([3, 1])
        tensor, other = mine(rank), mine(rank)
        dist.all_reduce(tensor, group=even if rank % 2 == 0 else odd)
        if rank % 2:
            dist.broadcast(other, 3, group=odd)
        return tensor, other, dist.get_process_group_ranks(odd)

    results = simgpu.spawn(run)
    for rank, (tensor, other, _) in enumerate(results):
        equal(tensor, given(rank) + given((rank + 2) % 4))
        equal(other, given(3) if rank % 2 else given(rank))
    assert results[1][2] == [1, 3]


def test_several_as_one():
    def run(rank):
        first, second = mine(rank), mine(rank + 4)
        with _coalescing_manager(async_ops=True) as both:
            dist.all_reduce(first)
            dist.all_reduce(second)
        both.wait()
        wide, narrow = torch.zeros(12, 2, device="sim"), torch.zeros(8, device="sim")
        with _coalescing_manager():
            dist.all_gather_into_tensor(wide, mine(rank))
            dist.all_gather_into_tensor(narrow, mine(rank, shape=(2,)))
        return first, second, wide, narrow

    for first, second, wide, narrow in simgpu.spawn(run):
        equal(first, sum(all_given()))
        equal(second, sum(given(rank + 4) for rank in range(N)))
        equal(wide, torch.cat(all_given()))
        equal(narrow, torch.cat(all_given(shape=(2,))))


def test_objects():
    def run(rank):
        everything, wanted, one = [None] * N, [None] * N if rank == 1 else None, [None]
        dist.all_gather_object(everything, {"rank": rank, "tensor": mine(rank)})
        dist.gather_object(str(rank), wanted, dst=1)
        words = ["a", "bc"] if rank == 2 else [None, None]
        dist.broadcast_object_list(words, src=2)
        dist.scatter_object_list(one, list("wxyz") if rank == 0 else None, src=0)
        return [thing["rank"] for thing in everything], wanted, words, one

    for rank, (everything, wanted, words, one) in enumerate(simgpu.spawn(run)):
        assert everything == [0, 1, 2, 3]
        assert wanted == (["0", "1", "2", "3"] if rank == 1 else None)
        assert (words, one) == (["a", "bc"], ["wxyz"[rank]])


def test_messages():
    def run(rank):
        after, before = (rank + 1) % N, (rank - 1) % N
        around, back, tagged, whoever = (torch.zeros(3, 2, device="sim") for _ in range(4))
        calls = [
            (dist.isend, mine(rank), after),
            (dist.irecv, around, before),
            (dist.isend, mine(rank), before),
            (dist.irecv, back, after),
        ]
        for work in dist.batch_isend_irecv([dist.P2POp(*call) for call in calls]):
            work.wait()
        if rank == 0:
            dist.isend(mine(7), 1, tag=7)
            dist.send(mine(8), 1, tag=8)
        elif rank == 1:
            eighth = torch.zeros(3, 2, device="sim")
            dist.recv(eighth, 0, tag=8)
            assert dist.recv(tagged, 0, tag=7) == 0
            equal(eighth, given(8))
        elif rank == 2:
            assert dist.recv(whoever) == 3
        else:
            dist.send(mine(9), 2)
        return around, back, tagged, whoever

    results = simgpu.spawn(run)
    for rank, (around, back, _, _) in enumerate(results):
        equal(around, given((rank - 1) % N))
        equal(back, given((rank + 1) % N))
    equal(results[1][2], given(7))
    equal(results[2][3], given(9))


def test_functional_collectives_and_their_gradients():
    def run(rank):
        group = dist.group.WORLD
        total = functional.all_reduce(mine(rank), "sum", group)
        rows = functional.all_gather_tensor(mine(rank), 0, group)
        share = functional.reduce_scatter_tensor(mine(rank, shape=(4, 2)), "avg", 0, group)
        leaf = mine(rank).requires_grad_()
        (functional.all_gather_tensor_autograd(leaf, 0, group) * mine(9, shape=(12, 2))).sum().backward()
        return total + 0, rows + 0, share + 0, leaf.grad

    for rank, (total, rows, share, gradient) in enumerate(simgpu.spawn(run)):
        equal(total, sum(all_given()))
        equal(rows, torch.cat(all_given()))
        equal(share, (sum(all_given(shape=(4, 2))) / N).chunk(N)[rank])
        equal(gradient, 4 * given(9, shape=(12, 2)).chunk(N)[rank])


def test_plain_collectives_wait_for_the_result_of_a_functional_one():
    def run(rank):
        result, gathered, received = (functional.all_reduce(mine(rank), "sum", dist.group.WORLD) for _ in range(3))
        dist.all_reduce(result)
        everything = torch.empty(N * 3, 2, device="sim")
        dist.all_gather_into_tensor(everything, gathered)
        dist.isend(received, (rank + 1) % N)
        dist.recv(other := torch.empty(3, 2, device="sim"), (rank - 1) % N)
        return result + 0, everything, other

    total = sum(all_given())
    for result, everything, other in simgpu.spawn(run):
        equal(result, N * total)
        equal(everything, torch.cat([total] * N))
        equal(other, total)


def test_tensors_that_are_not_contiguous():
    def run(rank):
        wide = mine(rank, shape=(4, 6))
        dist.all_reduce(wide[:, ::2])
        dist.broadcast(wide.t()[1], 0)
        return wide

    for rank, wide in enumerate(simgpu.spawn(run)):
        wanted = given(rank, shape=(4, 6))
        wanted[:, ::2] = sum(all_given(shape=(4, 6)))[:, ::2]
        wanted[:, 1] = given(0, shape=(4, 6))[:, 1]
        equal(wide, wanted)


@pytest.mark.parametrize("size", [1, 3])
def test_one_rank_and_a_number_that_divides_nothing(size):
    def run(rank):
        tensor, empty = mine(rank, shape=(7,)), torch.zeros(0, device="sim")
        dist.all_reduce(tensor)
        dist.all_reduce(empty)
        gathered = torch.zeros(size * 7, device="sim")
        dist.all_gather_into_tensor(gathered, mine(rank, shape=(7,)))
        return tensor, gathered

    for tensor, gathered in simgpu.spawn(run, nprocs=size):
        equal(tensor, sum(given(rank, shape=(7,)) for rank in range(size)))
        equal(gathered, torch.cat([given(rank, shape=(7,)) for rank in range(size)]))


def test_groups_of_other_backends_and_split_groups_are_ours():
    """Programs bind the device early, ask for gloo for the host's tensors, and split groups as NCCL can."""

    def run(rank):
        dist.init_process_group("nccl", device_id=torch.device("sim", rank))
        host, halves = dist.new_group(backend="gloo"), dist.split_group(split_ranks=[[0, 1], [3, 2]])
        data, part = torch.ones(2), torch.full((2,), float(rank), device="sim")
        dist.all_reduce(data, group=host)
        dist.all_reduce(part, group=halves)
        assert dist.is_torchelastic_launched()
        return dist.get_backend(host), data.tolist(), part.tolist()

    assert simgpu.spawn(run) == [("gloo", [4, 4], [s, s]) for s in (1, 1, 5, 5)]
