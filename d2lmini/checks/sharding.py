"""Checks of the exercises on sharding: bytes by formula, and programs that are run on 1, 2, 3 and 4 simulated ranks."""

import math
from itertools import product

import torch

from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, apart, ask, brief, called, check, many, number, typed
from d2lmini.checks.traced import run_on_ranks

RANKS = (1, 2, 3, 4)


@check
def zero_bytes(function):
    """``function(parameters, ranks, stage, batches)``: bytes a rank sends in a step of so many micro-batches."""
    cases = ((1200, 4), (960, 8), (30, 2), (8_030_261_248, 64), (5, 1))
    for (parameters, ranks), stage, batches in product(cases, range(4), (1, 3)):
        half = 2 * parameters * (ranks - 1) / ranks
        want = half * (2, 2, batches + 1, 3 * batches)[stage]
        given = f"{parameters:,} parameters, {many(ranks, 'rank')}, stage {stage}, {many(batches, 'micro-batch', 'es')}"
        got = ask(function, parameters, ranks, stage, batches, given=given, what="a number of bytes")
        if not math.isclose(got, want, rel_tol=1e-6):
            told, found = apart(want, got, ",")
            raise Wrong(f"{given}: expected {told} bytes, got {found}{_rings(want, got, half)}")
    return "stages 0 and 1 send once a step, stage 2 reduces every micro-batch, stage 3 also gathers for each, twice"


def _rings(want, got, half):
    if not half:
        return ""
    told, found = apart(want / half, got / half)
    return f": {told} half rings of {half:,.0f}, yours are {found}"


@check
def fsdp_peak(function):
    """``function(layers, root, ranks)``: the most bytes of a step of FSDP2, its activations left out."""
    llama = [218_112_000] * 32
    sizes = (llama, [30, 10, 20, 5], [4, 4, 40], [50, 3, 3], [12])
    for layers, (root, ranks) in product(sizes, ((1_050_677_248, 8), (100, 4), (7, 1), (0, 2))):
        while_computing = max(
            4 * own + 2 * before + 4 * after for before, own, after in zip([0, *layers], layers, [*layers[1:], 0])
        )
        state = 16 * (sum(layers) + root) / ranks
        want = state + max(while_computing + 3 * root, 6 * root)
        told = f"layers of {brief(layers) if layers is not llama else '32 × 218,112,000'}"
        given = f"{told} parameters, {root:,} in the root, {many(ranks, 'rank')}"
        got = ask(function, list(layers), root, ranks, given=given, what="a number of bytes")
        if not math.isclose(got, want, rel_tol=1e-9):
            wanted, found = apart(want, got, ",")
            raise Wrong(f"{given}: expected {wanted} bytes, of which {state:,.0f} are shards, got {found}")
    return "the fullest moment: a layer with its neighbours and the root beside it, or the root's gradient at the end"


@check
def clip_shards(function):
    """``function(gradients, limit)``: clip a rank's shards of the gradient by the norm over all ranks, in place."""
    numbers = torch.Generator().manual_seed(0)
    everything = [
        [torch.randn(size, generator=numbers, dtype=torch.float64) * 2.0**rank for size in sizes]
        for rank, sizes in enumerate([(30, 20), (40,), (20, 0), ()])
    ]
    zeros = [[torch.zeros_like(shard) for shard in shards] for shards in everything]
    for ranks in RANKS:
        for shards, limit in ((everything, 0.5), (everything, 1e6), (zeros, 1.0)):
            _try_clip(function, shards[:ranks], limit)
    return "one all-reduce of the squares' sum: every rank scales by the same factor, and only above the limit"


def _try_clip(function, shards, limit):
    def program(rank):
        mine = [shard.to("sim") for shard in shards[rank]]
        answer = called(function, mine, limit)
        return answer, [shard.cpu() for shard in mine]

    sizes = [[len(shard) for shard in mine] for mine in shards]
    norm = math.sqrt(sum(float(shard.square().sum()) for mine in shards for shard in mine))
    given = f"shards of {brief(sizes)} numbers on {many(len(shards), 'rank')}, norm {norm:.4g}, limit {limit:g}"
    results, messages = run_on_ranks(program, len(shards), given)
    sent = sum(span.nbytes for span in messages)
    for rank, (answer, mine) in enumerate(results):
        got = number(answer)
        if got is None:
            raise Wrong(f"{given}: rank {rank} should return the norm before clipping, got {typed(answer)}")
        if not math.isclose(got, norm, rel_tol=1e-4, abs_tol=1e-6):
            own = math.sqrt(sum(float(shard.square().sum()) for shard in shards[rank]))
            hint = " (that is the norm of its own shards)" if math.isclose(got, own, rel_tol=1e-6) else ""
            raise Wrong(f"{given}: rank {rank} should return {norm:.6g}, got {got:.6g}{hint}")
        factor = min(1.0, limit / norm) if norm else 1.0
        for place, (found, before) in enumerate(zip(mine, shards[rank])):
            if off := first_off(f"shard {place}", before * factor, found, rtol=1e-4):
                where = f"{given}: on rank {rank}, whose shards are to be scaled in place by {factor:.4g},"
                raise Wrong(f"{where} {off}")
    if sent > 64 * len(shards) ** 2:
        raise Wrong(f"{given}: the ranks sent {sent:,} bytes; an all-reduce of one number is enough")


@check
def zero1_step(function):
    """``function(flat, gradient, shard, optimizer)``: a step of ZeRO-1 on this rank, all in place."""
    for ranks in RANKS:
        _try_zero1(function, ranks, each=3)
    return "reduce-scatter, update the shard, all-gather: the parameters of one GPU, and the bytes of one all-reduce"


def _try_zero1(function, ranks, each, steps=3):
    n, numbers = ranks * each, torch.Generator().manual_seed(ranks)
    start = torch.randn(n, generator=numbers, dtype=torch.float64)
    gradients = torch.randn(steps, ranks, n, generator=numbers, dtype=torch.float64)
    alone, wanted = start.clone().requires_grad_(), []
    optimizer = torch.optim.SGD([alone], lr=0.1, momentum=0.9)
    for gradient in gradients:
        alone.grad = gradient.mean(0)
        optimizer.step()
        wanted.append(alone.detach().clone())

    def program(rank):
        flat = start.to("sim")
        shard = flat.chunk(ranks)[rank].clone().requires_grad_()
        mine, found = torch.optim.SGD([shard], lr=0.1, momentum=0.9), []
        for gradient in gradients[:, rank]:
            called(function, flat, gradient.to("sim"), shard, mine)
            found.append((flat.detach().cpu(), shard.detach().cpu()))
        return found

    given = f"{n} parameters on {many(ranks, 'rank')}"
    results, messages = run_on_ranks(program, ranks, given)
    sent = sum(span.nbytes for span in messages)
    for step, want in enumerate(wanted):
        for rank, found in enumerate(results):
            before = found[step - 1][0] if step else start
            _compare_zero1(f"{given}, step {step}", rank, each, found[step], want, before)
    formula = steps * 2 * (ranks - 1) * 8 * n
    if sent > formula:
        raise Wrong(
            f"{given}: in {steps} steps all ranks together should send {formula:,} bytes, they sent {sent:,} "
            "(reduce-scatter the gradient and all-gather the parameters, half an all-reduce each)"
        )


def _compare_zero1(given, rank, each, found, want, before):
    flat, shard = found
    own = slice(rank * each, (rank + 1) * each)
    if not torch.allclose(shard, want[own], rtol=1e-9):
        raise Wrong(
            f"{given}: the shard of rank {rank} should be {brief(want[own])}, as on one GPU with the mean of all "
            f"gradients, got {brief(shard)}"
        )
    for part, (a, b) in enumerate(zip(flat.split(each), want.split(each), strict=True)):
        if not torch.allclose(a, b, rtol=1e-9):
            hint = "; `flat` is as it was: write into it" if torch.equal(flat, before) else ""
            raise Wrong(
                f"{given}: on rank {rank}, the part of `flat` that rank {part} updates should be {brief(b)}, "
                f"got {brief(a)}{hint}"
            )


class _File:
    """One rank's part of a saved vector, from which slices are read and counted."""

    def __init__(self, numbers):
        self.__numbers, self.read = numbers, 0  # there is no other way to read them

    def __len__(self):
        return len(self.__numbers)

    def __getitem__(self, place):
        found = self.__numbers[place].clone()
        self.read += found.numel()
        return found


@check
def load_shard(function):
    """``function(files, rank, ranks)``: a rank's shard of a vector that other ranks saved, each in a file."""
    for n, saved, ranks in product((12, 10, 5, 1), RANKS, RANKS):
        whole = torch.arange(1, n + 1) / 10  # shorter numbers lose digits
        each = -(-n // saved)
        parts = [whole[i * each : (i + 1) * each] for i in range(saved)]
        for rank in range(ranks):
            _try_load(function, whole, parts, rank, ranks)
    return "each rank reads its own shard and nothing else, however many ranks saved"


def _try_load(function, whole, parts, rank, ranks):
    files, each = [_File(part) for part in parts], -(-len(whole) // ranks)
    sizes = " and ".join(str(len(part)) for part in parts)
    given = f"{many(len(parts), 'file')} with {sizes} numbers, rank {rank} of {ranks}"
    try:
        answer = called(function, list(files), rank, ranks, given=given)
    except Exception as error:
        raise Wrong(f"{given}: your code raised {type(error).__name__}: {error}") from error
    want = whole[rank * each : (rank + 1) * each]
    if not isinstance(answer, torch.Tensor) or answer.dim() != 1 or answer.dtype != want.dtype:
        raise Wrong(f"{given}: expected a vector of float32, got {typed(answer)}")
    if not torch.equal(answer, want):
        told, found = (", ".join(f"{x:g}" for x in numbers.tolist()) for numbers in (want, answer))
        raise Wrong(f"{given}: expected the numbers [{told}], got [{found}]")
    read = sum(file.read for file in files)
    if read > len(want):
        raise Wrong(f"{given}: your code read {many(read, 'number')} for a shard of {len(want)}")
