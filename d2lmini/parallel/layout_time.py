"""What a step of a transformer in a layout takes, by formula: computing, messages that nothing hides, the update."""

from functools import cache

from d2lmini.parallel.layout import SCORE, STATE, WEIGHT, held
from simgpu.hardware.gemm import Gemm
from simgpu.hardware.op_costs import operation_seconds

# Bytes that norms and sums pass to and from memory in forward, for each number of the width, and how many times that in
# backward: each one kernel (True), or operation by operation, with norms in 32 bits, as PyTorch had it until 2.8.
PASSED = {True: (28, 2.0), False: (84, 2.6)}


def layer_seconds(shape, layout, gpu):
    """Return the seconds of a layer's forward and of its backward, of one micro-batch on one GPU, without messages.

    A router is taken to be balanced: each expert gets as many tokens.

    Args:
        shape: The model's `Shape`.
        layout: The `Layout`.
        gpu: A `hardware.GPU`.
    """
    tokens = layout.batch * shape.length / layout.context
    experts = shape.experts // layout.expert  # of this rank; they get the tokens of all ranks that share experts
    forward, backward = _products(tokens, shape.attention, layout.tensor, gpu)
    ahead, back = _products(tokens * shape.chosen / experts, shape.feed_forward, layout.tensor, gpu)
    flops = 4 * tokens * shape.length * shape.width / layout.tensor / 2  # causal: half of the pairs
    fused = [operation_seconds(n * flops, 0, gpu, "attention", "bfloat16") for n in (1, 2.5)]
    norms, times = PASSED[layout.fused]
    # turning queries and keys; the gate
    inside = (28 * shape.width + 10 * shape.hidden * shape.chosen) / layout.tensor
    sorting = 16 * shape.width * shape.chosen if shape.experts > 1 else 0  # by expert, and back: each read and written
    width = shape.width / (layout.tensor if layout.sequence else 1)
    small = operation_seconds(0, tokens * (norms * width + inside + sorting), gpu, "pointwise")
    return forward + experts * ahead + fused[0] + small, backward + experts * back + fused[1] + times * small


def _products(tokens, sides, tensor, gpu):
    """Return the seconds of linear layers' forward and backward; sides: those cut by columns, those cut by rows."""
    columns, rows = sides
    cut = [(a, b / tensor) for a, b in columns] + [(a / tensor, b) for a, b in rows]
    forward, inputs = (sum(_product(tokens, *pair[::way], gpu) for pair in cut) for way in (1, -1))
    return forward, inputs + sum(_product(a, tokens, b, gpu) for a, b in cut)


@cache
def _product(m, k, n, gpu):
    m, n, k = round(m), round(n), round(k)
    product = Gemm(1, m, n, k, 2 * (m * k + k * n + m * n))
    return operation_seconds(2 * m * n * k, product.nbytes, gpu, "gemm", "bfloat16", (product,))


def step_seconds(shape, layout, gpu, collective, pace=1.0):
    """Return the time of one step by part: computing, messages by kind, the bubble, the update, all in seconds.

    Ranks of one layer are neighbours; collectives of groups that share wires count as one. All stages have as many
    layers, and the last, which has the logits too, sets the time; the others delay its first micro-batch and follow its
    last. Nothing hides what tensor, context and expert ranks exchange, nor what stages send: interleaved, each chunk
    sends. "data" is what no computation hides.

    Args:
        shape: The model's `Shape`.
        layout: The `Layout`.
        gpu: A `hardware.GPU`.
        collective: A function of (operation, GPUs, bytes) that returns the seconds on the cluster, as
            `collective_costs.seconds`; the operation "send" is one message of a stage, with all GPUs of the layout.
        pace: How many times longer computing takes than the figures say, in the software at hand.

    Returns:
        {"compute", "tensor", "context", "experts", "stages", "bubble", "data", "update": seconds}
    """
    tokens, layers = layout.batch * shape.length / layout.context, shape.layers / layout.pipeline
    forward, backward = (pace * seconds for seconds in layer_seconds(shape, layout, gpu))
    scores = _product(tokens, shape.width, shape.words / layout.tensor, gpu)
    ends = 3 * scores + operation_seconds(0, 2 * SCORE * tokens * shape.words / layout.tensor, gpu, "pointwise")
    backward += layout.recomputed * forward  # which is computed again there, and hides messages too
    messages = {what: layers * n for what, n in _layer_messages(shape, layout, collective).items()}
    one = layers * (forward + backward)
    mine = held(shape, layout)
    # Adam reads the gradient and three 32-bit numbers, writes these and the weight.
    updated = [n / max(1, layout.sharers // e) if layout.level else n for n, e in zip(mine, (1, layout.expert))]
    moved = (layout.gradient + 2 * STATE + WEIGHT) * sum(updated)
    return {
        "compute": layout.batches * (one + pace * ends),
        **{what: layout.batches * n for what, n in messages.items()},
        "stages": layout.batches * _sends(shape, layout, collective),
        "bubble": (layout.pipeline - 1) / layout.chunks * (one + sum(messages.values())),
        "data": _exposed(shape, layout, collective, mine, layers * forward, layers * backward),
        "update": operation_seconds(0, moved, gpu, "pointwise"),
    }


def _layer_messages(shape, layout, collective):
    """Return the seconds of what a layer's ranks exchange in one micro-batch, by kind."""
    tokens, again = layout.batch * shape.length / layout.context, layout.recomputed
    times = {"tensor": 0.0, "context": 0.0, "experts": 0.0}
    if layout.tensor > 1:  # once around attention, and once for each expert that a token passes
        halves = ("reduce_scatter", "all_gather") if layout.sequence else ("all_reduce",)
        each = sum(collective(half, layout.tensor, 2 * tokens * shape.width) for half in halves)
        times["tensor"] = (2 + again) * (1 + shape.chosen) * each
    if layout.context > 1:  # keys and values; in backward once more, and their gradients
        nbytes = 4 * shape.keys * layout.batch * shape.length
        gather, scatter = (
            collective(half, layout.context * layout.tensor, nbytes) for half in ("all_gather", "reduce_scatter")
        )
        times["context"] = 2 * gather + scatter
    if layout.expert > 1:  # to the experts and back, in forward and in backward
        nbytes = 2 * tokens * shape.chosen * shape.width * (1 if layout.sequence else layout.tensor)
        times["experts"] = (4 + 2 * again) * collective("alltoall", layout.expert * layout.tensor, nbytes)
    return times


def _sends(shape, layout, collective):
    """Return the seconds of what a stage sends and awaits in one micro-batch: activations, and their gradients."""
    if layout.pipeline == 1:
        return 0.0
    nbytes = 2 * layout.batch * shape.length / layout.context * shape.width
    nbytes /= layout.tensor if layout.sequence else 1
    return 2 * layout.chunks * collective("send", layout.gpus, nbytes)


def _exposed(shape, layout, collective, mine, forward, backward):
    """Return the seconds of the replicas' collectives beside which nothing is computed.

    The embedding comes first in forward and last in backward, so that nothing hides its own messages. Hybrid sharding
    also all-reduces the gradients of all shards, once a step, beside the last backward.
    """
    if layout.replicas == 1:
        return 0.0

    def seconds(operation, shared, experts=0):
        each = WEIGHT if operation == "all_gather" else layout.gradient
        ranks = layout.tensor * (layout.replicas if operation == "all_reduce" else layout.sharers)
        nbytes = each * layout.tensor * (shared + (experts * layout.expert if layout.replicas > layout.expert else 0))
        return collective(operation, ranks, nbytes)

    embedding = shape.words * shape.width / layout.tensor
    whole = 0.0
    if layout.level == 0 or layout.sharers < layout.replicas:
        whole = max(seconds("all_reduce", *mine) - backward, seconds("all_reduce", embedding))
    if layout.level == 0:
        return whole
    gather, scatter = (seconds(operation, *mine) for operation in ("all_gather", "reduce_scatter"))
    first, last = (seconds(operation, embedding) for operation in ("all_gather", "reduce_scatter"))
    if layout.level < 3:
        times = layout.batches if layout.level == 2 else 1  # level 2 has no room to add up whole gradients
        return times * max(scatter - backward, last) + gather
    return whole + layout.batches * (max(gather - forward, first) + max(gather + scatter - backward, last))
