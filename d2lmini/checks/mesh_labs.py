"""Check of the lab on placements: a training step on a device mesh, whose only message is one all-reduce."""

import contextlib
import logging

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

import simgpu
from d2lmini.checks.mechanism import Wrong, brief, called, check, many, typed
from d2lmini.checks.traced import run_on_ranks

MESHES = ((2, 2), (1, 2), (3, 1))  # ranks along "data", along "columns"
ROWS, WIDTH, COLUMNS = 8, 12, 8  # examples, features and columns of a rank: to gather examples costs more than a sum
SLACK = 64  # bytes on each rank, for a loss that somebody adds up


@check
def mesh_step(function):
    """``function(x, y, w, mesh)``, on each rank: its columns of w after a step of SGD on the mean squared error."""
    with _nothing_logged("torch._subclasses.fake_tensor"):  # a traceback, beside the line that the check prints
        for data, columns in MESHES:
            _try_step(function, data, columns)
    return "every rank has its columns of the new w, for one all-reduce of their gradient"


@contextlib.contextmanager
def _nothing_logged(name):
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _try_step(function, data, columns):
    given, ranks = f"a mesh of {data} × {columns}", data * columns
    numbers = torch.Generator().manual_seed(data)
    shapes = (data * ROWS, WIDTH), (data * ROWS, columns * COLUMNS), (WIDTH, columns * COLUMNS)
    x, y, w = (torch.randn(shape, generator=numbers) for shape in shapes)
    parts = [_part_of(rank, (data, columns), x, y, w) for rank in range(ranks)]
    found, messages = run_on_ranks(_step_on_rank, ranks, given, function, (data, columns), parts)
    begin = min(began for _, began in found)
    sent = sum(span.nbytes for span in messages if span.start_s >= begin)
    for rank, (got, _) in enumerate(found):
        _must_be_columns(got, _stepped(x, y, w).chunk(columns, 1)[rank % columns], parts[rank], f"{given}: rank {rank}")
    least = columns * 2 * (data - 1) * 4 * WIDTH * COLUMNS
    if sent > least + SLACK * ranks:
        raise Wrong(
            f"{given}: the step is right, but {sent:,} bytes were sent; {least:,} are enough to all-reduce each rank's "
            f"part of the gradient over {many(data, 'rank')}"
        )
    if sent < least:
        raise Wrong(f"{given}: {sent:,} bytes were sent, too few to all-reduce the gradients ({least:,} bytes)")


def _part_of(rank, shape, x, y, w):
    """Return the rows of x, the block of y and the columns of w of a rank."""
    row, column = divmod(rank, shape[1])
    rows, columns = slice(row * ROWS, (row + 1) * ROWS), slice(column * COLUMNS, (column + 1) * COLUMNS)
    return [part.contiguous() for part in (x[rows], y[rows, columns], w[:, columns])]


def _step_on_rank(rank, function, shape, parts):
    mesh = init_device_mesh("sim", shape, mesh_dim_names=("data", "columns"))
    mine = [part.to("sim") for part in parts[rank]]
    dist.barrier()
    torch.sim.synchronize()
    begin = simgpu.now()
    got = called(function, *mine, mesh)
    if isinstance(got, DTensor):
        raise TypeError("expected the rank's own columns, a plain tensor, got a DTensor: use to_local()")
    return (got.detach().cpu() if isinstance(got, torch.Tensor) else got), begin


def _stepped(x, y, w):
    return w - 0.1 * 2 / y.numel() * x.T @ (x @ w - y)


def _must_be_columns(got, want, part, given):
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        raise Wrong(f"{given} expected its columns of w, a tensor of shape {list(want.shape)}, got {typed(got)}")
    if torch.allclose(got, want, rtol=1e-5, atol=1e-6):
        return
    alone = _stepped(*part)
    hint = " (this is the step of its own part alone)" if torch.allclose(got, alone, rtol=1e-5, atol=1e-6) else ""
    worst = (got - want).abs().nan_to_num(torch.inf).argmax()
    expected, found = (brief(t.flatten()[worst].item(), 6) for t in (want, got))
    raise Wrong(f"{given} expected {expected} in its columns of w where they are farthest off, got {found}{hint}")
