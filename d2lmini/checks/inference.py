"""Checks on inference: how many users a GPU can serve, and a lab, to generate text without reading it all again."""

import torch

import simgpu
from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, ask, attempt, check, many, must_be, scored, typed
from simgpu.hardware.machines import build

BOOK_MS, MOST_MS = 3.84, 5.0  # of work on the GPU; the starter has 8.7, one that keeps only the keys 6.6
WIDTH, WORDS = 256, 300
CASES = ((1, 6), (7, 12), (40, 1), (512, 16))  # tokens of the prompt, tokens to generate
TIMED = (2048, 12)


@check
def most_users(function):
    """``function(memory, weights, cache, bandwidth, longest)``: users whose caches fit and can be read in time."""
    for memory, weights, cache, bandwidth, longest in (
        (40, 16, 1, 1000, 1.0),  # bounded by the memory
        (40, 16, 1, 1000, 0.02),  # by the time
        (41, 16, 3, 100, 0.26),  # not a whole number, of the time
        (41, 16, 3, 1000, 1.0),  # and of the memory
        (43, 16, 9, 43, 1.0),  # exactly full, exactly in time
        (10, 16, 1, 1000, 1.0),  # the weights do not fit
        (40, 16, 1, 100, 0.1),  # the weights alone take too long
    ):
        given = (
            f"{memory} GB of memory, {weights} of weights, {cache} a user, {bandwidth} GB/s, "
            f"at most {longest * 1e3:g} ms"
        )
        fit, timely = (memory - weights) // cache, int((bandwidth * longest - weights) / cache + 1e-9)
        sizes = [amount * 10**9 for amount in (memory, weights, cache, bandwidth)]
        got = ask(function, *sizes, longest, given=given, what="a number of users")
        slips = {"the memory holds fewer": timely, "they would wait too long": fit}
        must_be(max(0, min(fit, timely)), got, given=given, unit=" users", slips=slips)
    return "as many users as fit into memory and get each token in time, and none where not even the weights do"


@check
def generate(function):
    """``function(prompt, count, E, Wq, Wk, Wv)``: the tokens that follow; no key and no value is computed twice."""
    for case in (*CASES, TIMED):
        _compare(function, *case)
    if not simgpu.has_clock():
        simgpu.enable(2, shapes_only=True)  # the tokens were compared on the CPU
    with simgpu.use_clock(simgpu.Clock(build(max(2, torch.sim.device_count()), "GTX 580", "PCIe3-x16"))):
        busy = _timed(function, *TIMED)
    told = f"{scored('generate', busy * 1e3, BOOK_MS, 'ms')} of work on the GPU"
    if busy * 1e3 > MOST_MS:
        wanted = f"at most {MOST_MS} ms are wanted: compute no key and no value twice"
        raise Wrong(f"{_words(*TIMED)}: the tokens are right, but they take {told}; {wanted}")
    return f"the tokens are right, and {_words(*TIMED)} take {told}"


def _words(length, count):
    return f"{many(count, 'token')} after a prompt of {many(length, 'token')}"


def _inputs(length):
    """Return a prompt, the vocabulary's rows and the weights of queries, keys and values, on the CPU."""
    draw = torch.Generator().manual_seed(length)
    E = torch.randn(WORDS, WIDTH, generator=draw)
    weights = [torch.randn(WIDTH, WIDTH, generator=draw) / WIDTH**0.5 for _ in range(3)]
    return torch.randint(WORDS, (length,), generator=draw), E, *weights


def _compare(function, length, count):
    """Compare the tokens with those that the keys and values of the whole vocabulary give."""
    given, (prompt, E, Wq, Wk, Wv) = _words(length, count), _inputs(length)
    got = attempt(lambda *inputs: function(inputs[0], count, *inputs[1:]), prompt, E, Wq, Wk, Wv, given=given)
    if not isinstance(got, torch.Tensor) or got.shape != (count,):
        shape = f"a tensor of shape {list(got.shape)}" if isinstance(got, torch.Tensor) else typed(got)
        raise Wrong(f"{given}: expected {many(count, 'token')}, a tensor of shape [{count}], got {shape}")
    tokens, keys, values = prompt, E @ Wk, E @ Wv
    for _ in range(count):
        weights = (E[tokens[-1]] @ Wq @ keys[tokens].T / WIDTH**0.5).softmax(0)
        tokens = torch.cat([tokens, (weights @ values[tokens] @ E.T).argmax()[None]])
    if off := first_off("tokens", tokens[length:], got, rtol=0, atol=0):
        raise Wrong(f"{given}: {off}")


def _timed(function, length, count):
    """Return the seconds for which a simulated GPU works."""
    given, (prompt, *weights) = _words(length, count), (tensor.to("sim:0") for tensor in _inputs(length))
    torch.sim.synchronize("sim:0")
    with simgpu.trace() as trace:
        got = attempt(lambda: function(prompt, count, *weights), given=f"the timed run, {given}")
        torch.sim.synchronize("sim:0")
    if any(span.kind == "copy" for span in trace.spans) or got.device != prompt.device:
        raise Wrong(f"{given}: your code copies between host and GPU; leave all tensors on the GPU")
    return trace.busy_seconds()["gpu0"]
