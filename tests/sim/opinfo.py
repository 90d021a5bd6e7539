"""PyTorch's own table of operations, run on the CPU and on a simulated GPU, and the difference.

Samples are made on the CPU and copied; what an operation does to random numbers starts from the same seed. An operation
counts as deterministic when the CPU gives the same bits again; where ours differ, the CPU is asked forty times more,
with its tensors at other addresses, on which some of LAPACK's results depend.
"""

import itertools
import warnings
from functools import partial

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "sim:1"
# Importing it forbids every later test of the process to choose how exactly products are computed.
torch.backends.m.__allow_nonbracketed_mutation_flag = True
# It looks through the whole stack before every sample, for the name of a test of torch's own: nine tenths of the time.
common_utils.extract_test_fn = lambda: None


def name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def operations():
    """Return those of the table that the CPU can run."""
    return [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]


ON_HOST = {"tensor_split"}  # torch asks for that on CUDA too
UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
FROM_NUMBERS = {"arange", "linspace", "logspace"}  # on the host unless a device is named


def _copy(x, device):
    if isinstance(x, torch.Tensor):
        return x.detach().clone().to(device).requires_grad_(x.requires_grad)
    named = (isinstance(x, str) and x == "cpu") or (isinstance(x, torch.device) and x.type == "cpu")
    return device if named else x


def _call(op, sample, device):
    torch.manual_seed(0)
    inputs = tree_map(lambda x: _copy(x, device), (sample.input, sample.args, sample.kwargs))
    if op.name in ON_HOST:
        inputs = (inputs[0], sample.args, sample.kwargs)
    out = op.op(inputs[0], *inputs[1], **inputs[2])
    return tree_flatten(inputs)[0], tree_flatten(out)[0]


def _difference(a, b, device):
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return None if (a == b or a != a) and type(a) is type(b) else f"{b!r} for {a!r}"
    if b.device != torch.device(device):
        return f"is on {b.device}"
    a, b = a.detach(), b.detach().cpu()
    if a.layout != b.layout or a.shape != b.shape or a.dtype != b.dtype:
        return f"shape, type or layout: {tuple(a.shape)} {a.dtype} {a.layout}, {tuple(b.shape)} {b.dtype} {b.layout}"
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    return None if bool(((a == b) | ((a != a) & (b != b))).all()) else "values"


def wrong(expected, got, device=DEVICE):
    """Say how two lists of results differ, or return None when they are the same to the last bit."""
    if len(expected) != len(got):
        return f"{len(got)} results for {len(expected)}"
    return next(filter(None, (_difference(a, b, device) for a, b in zip(expected, got))), None)


def _gradients(inputs, out):
    """Return the gradients of all outputs in the inputs: none when there is nothing to differentiate."""
    outs, leaves = ([x for x in given if isinstance(x, torch.Tensor) and x.requires_grad] for given in (out, inputs))
    if not outs or not leaves:
        return []
    seeds = [torch.linspace(-1, 1, x.numel()).reshape(x.shape).to(x.dtype).to(x.device) for x in outs]
    return [g.cpu() for g in torch.autograd.grad(outs, leaves, seeds, allow_unused=True) if g is not None]


def _try(function, *args):
    """Return a function's result and None, or None and its error in a line."""
    try:
        return function(*args), None
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"


def _wavers(op, sample, expected):
    """Return whether the CPU itself gives other values when its tensors lie elsewhere."""
    held = []
    for size in range(1, 121, 3):
        held.append(torch.empty(size))
        if wrong(expected, _call(op, sample, "cpu")[1], "cpu"):
            return True
    return False


def compare(op, first=None):
    """Return (forward, backward): each None when not tested, "" when all samples agree, else the first difference.

    Gradients agree when torch's own comparison of float32 says so: backward may take another, equal formula.
    """
    grad = op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
    forward = backward = None
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=grad), first):
        once, again = (_try(_call, op, sample, "cpu")[0] for _ in range(2))
        if not once or not again or (wrong(once[1], again[1], "cpu") and op.name not in UNWRITTEN):
            continue
        ours, difference = _try(_call, op, sample, DEVICE)
        if ours:
            at_home = op.name in FROM_NUMBERS and "device" not in sample.kwargs
            difference = next(filter(None, _try(wrong, once[1], ours[1], "cpu" if at_home else DEVICE)), None)
            if difference == "values" and (op.name in UNWRITTEN or _wavers(op, sample, once[1])):
                continue
        forward = forward or difference or ""
        expected = _try(_gradients, *once)[0] if grad and ours else None
        if expected:
            found, difference = _try(_gradients, *ours)
            close = partial(torch.testing.assert_close, found, expected, equal_nan=True)
            backward = backward or difference or _try(close)[1] or ""
    return forward, backward


def table(ops, first=None, report=print):
    """Compare all of `ops`, report each that differs, and return the numbers (forward ok, all, backward ok, all)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [compare(op, first) for op in ops]
    for op, both in zip(ops, results):
        for way, result in zip(("forward", "backward"), both):
            if result:
                report(f"{way} {name(op)}: {result}")
    return tuple(number for way in zip(*results) for number in (way.count(""), len(way) - way.count(None)))
