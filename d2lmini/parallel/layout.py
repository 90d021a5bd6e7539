"""Which layout of a transformer over GPUs fits into memory, and what a step takes: by formula, in no time.

A layout cuts each layer over `tensor` ranks (the innermost, inside a node), the layers over `pipeline` stages, and the
batch over `data` replicas. Numbers have 16 bits; Adam keeps 32-bit parameters and two more numbers for each.
"""

from dataclasses import dataclass

from simgpu.hardware.gemm import Gemm
from simgpu.hardware.op_costs import operation_seconds

WEIGHT, STATE = 2, 12  # bytes a parameter: 16-bit weights; 32-bit parameters and Adam's two moments
# Bytes that norms and sums pass to and from memory in forward, for each number of the width, and how many times that in
# backward: each one kernel (True), or operation by operation, with norms in 32 bits, as PyTorch had it until 2.8.
PASSED = {True: (28, 2.0), False: (84, 2.6)}
SCORE = 10  # bytes a score, at the peak: the 32-bit logarithm of its softmax, that one's gradient, the 16-bit score's


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer like `models.Llama`.

    Attributes:
        width: Numbers that stand for a token between layers.
        layers: How many.
        heads: Heads of attention.
        key_heads: Heads of keys and values.
        hidden: The width inside a feed-forward layer.
        words: Of the vocabulary.
        length: Tokens of a sequence.
        tied: Whether the logits' weight is the embedding's.
    """

    width: int
    layers: int
    heads: int
    key_heads: int
    hidden: int
    words: int
    length: int
    tied: bool = False

    @property
    def products(self):
        """The (inputs, outputs) of a layer's linear layers, those cut by columns and those cut by rows."""
        keys = self.width // self.heads * self.key_heads
        return (
            [(self.width, n) for n in (self.width, keys, keys, self.hidden, self.hidden)],
            [(self.width, self.width), (self.hidden, self.width)],
        )

    @property
    def layer(self):
        """The parameters of one layer, its two norms included."""
        return sum(a * b for cut in self.products for a, b in cut) + 2 * self.width

    @property
    def parameters(self):
        """All parameters."""
        return self.layers * self.layer + (1 if self.tied else 2) * self.words * self.width + self.width


@dataclass(frozen=True)
class Layout:
    """How a step is laid out over ``data × tensor × pipeline`` GPUs.

    Attributes:
        data, tensor, pipeline: Replicas, ranks that share a layer, and stages.
        level: Of ZeRO, 0 to 3.
        batch: Sequences in a micro-batch.
        batches: Micro-batches of a replica in a step.
        recomputed: The share of forward that backward computes again (activation checkpointing).
        gradient: Bytes of one gradient.
        fused: Whether a norm is one kernel.
        sequence: Whether norms and residuals are split over the tensor ranks too (sequence parallelism).
        chunks: Parts of the model that a stage has (interleaving); 1 is plain 1F1B.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    level: int = 0
    batch: int = 1
    batches: int = 1
    recomputed: float = 0.0
    gradient: int = 2
    fused: bool = True
    sequence: bool = False
    chunks: int = 1

    @property
    def gpus(self):
        """How many GPUs it needs."""
        return self.data * self.tensor * self.pipeline


def held(shape, layout):
    """Return the parameters of a rank of the first stage, which has the embedding; a single stage has the logits' too.

    Raises:
        ValueError: Tensor ranks do not divide the heads, the stages' chunks the layers, or, where these are
            interleaved, the stages the micro-batches.
    """
    if shape.heads % layout.tensor or shape.layers % (layout.pipeline * layout.chunks):
        raise ValueError(
            f"{shape.heads} heads and {shape.layers} layers cannot be cut for {layout.tensor} tensor "
            f"ranks and {layout.pipeline} stages of {layout.chunks} chunks"
        )
    if layout.chunks > 1 and layout.batches % layout.pipeline:
        raise ValueError(f"{layout.batches} micro-batches cannot be interleaved on {layout.pipeline} stages")
    ends = shape.words * shape.width * (1 if layout.pipeline > 1 or shape.tied else 2)
    return (shape.layers // layout.pipeline * shape.layer + ends) / layout.tensor


def memory_bytes(shape, layout):
    """Return the memory of the fullest GPU: {"weights", "gradients", "optimizer", "activations": bytes}.

    Activations are what backward reads, counted from a layer's operations with fused attention; of the first stage's
    micro-batches as many as there are stages are in flight (1F1B), interleaved (p − 1) ÷ chunks more.

    Args:
        shape: The model's `Shape`.
        layout: The `Layout`.

    Source: Rajbhandari et al., SC 2020, for the states; Korthikanti et al., MLSys 2023, for activations.

    >>> shape = parallel.Shape(width=4096, layers=32, heads=32, key_heads=8, hidden=14336, words=128256, length=2048)
    >>> parts = parallel.memory_bytes(shape, parallel.Layout(data=8, level=3))
    >>> {what: round(nbytes / 2**30) for what, nbytes in parts.items()}
    {'weights': 3, 'gradients': 2, 'optimizer': 11, 'activations': 13}
    """
    mine, parts = held(shape, layout), [layout.data if layout.level >= level else 1 for level in (3, 2, 1)]
    weights, gradients, state = WEIGHT / parts[0], layout.gradient / parts[1], STATE / parts[2]
    gathered = 2 * WEIGHT * shape.layer / layout.tensor if layout.level == 3 else 0  # this layer, and the next one
    tokens, more = layout.batch * shape.length, (layout.pipeline - 1) / layout.chunks if layout.chunks > 1 else 0
    under_way = min(layout.pipeline + more, layout.batches)
    keys = 2 * shape.key_heads / shape.heads
    inside = (2 * shape.width * (2 + keys) + 8 * shape.hidden) / layout.tensor  # q, k, v, mixed; gate, up, both after
    width = shape.width / (layout.tensor if layout.sequence else 1)
    kept = 2 * width + (1 - layout.recomputed) * (6 * width + inside)
    activations = tokens * kept * shape.layers / layout.pipeline
    scores = tokens * SCORE * shape.words / layout.tensor
    fullest = max(activations * under_way + (scores if layout.pipeline == 1 else 0), activations + scores)
    return {
        "weights": mine * weights + gathered,
        "gradients": mine * gradients,
        "optimizer": mine * state,
        "activations": fullest,
    }


def layer_seconds(shape, layout, gpu):
    """Return the seconds of a layer's forward and of its backward, of one micro-batch on one GPU, without messages.

    Args:
        shape: The model's `Shape`.
        layout: The `Layout`.
        gpu: A `hardware.GPU`.
    """
    tokens, columns, rows = layout.batch * shape.length, *shape.products
    cut = [(a, b / layout.tensor) for a, b in columns] + [(a / layout.tensor, b) for a, b in rows]
    products = [sum(_product(tokens, *sides[::way], gpu) for sides in cut) for way in (1, -1)]
    weights = sum(_product(a, tokens, b, gpu) for a, b in cut)
    flops = 4 * tokens * shape.length * shape.width / layout.tensor / 2  # causal: half of the pairs
    fused = [operation_seconds(n * flops, 0, gpu, "attention", "bfloat16") for n in (1, 2.5)]
    norms, times = PASSED[layout.fused]
    inside = (28 * shape.width + 10 * shape.hidden) / layout.tensor  # turning queries and keys; the gate
    width = shape.width / (layout.tensor if layout.sequence else 1)
    small = operation_seconds(0, tokens * (norms * width + inside), gpu, "pointwise")
    return products[0] + fused[0] + small, products[1] + weights + fused[1] + times * small


def _product(m, k, n, gpu):
    m, n, k = round(m), round(n), round(k)
    product = Gemm(1, m, n, k, 2 * (m * k + k * n + m * n))
    return operation_seconds(2 * m * n * k, product.nbytes, gpu, "gemm", "bfloat16", (product,))


def step_seconds(shape, layout, gpu, collective, pace=1.0):
    """Return the time of one step: {"compute", "tensor", "bubble", "data", "update": seconds}.

    Ranks of one layer are neighbours; a collective of replicas shares the wires with its neighbours', so that all count
    as one. All stages have as many layers, and the last, which has the logits too, sets the time; the others delay its
    first micro-batch and follow its last. What stages send takes no time. "data" is what no computation hides.

    Args:
        shape: The model's `Shape`.
        layout: The `Layout`.
        gpu: A `hardware.GPU`.
        collective: A function of (operation, GPUs, bytes) that returns the seconds on the cluster, as
            `collective_costs.seconds`.
        pace: How many times longer computing takes than the figures say, in the software at hand.
    """
    tokens, layers = layout.batch * shape.length, shape.layers / layout.pipeline
    forward, backward = (pace * seconds for seconds in layer_seconds(shape, layout, gpu))
    scores = _product(tokens, shape.width, shape.words / layout.tensor, gpu)
    ends = 3 * scores + operation_seconds(0, 2 * SCORE * tokens * shape.words / layout.tensor, gpu, "pointwise")
    backward += layout.recomputed * forward  # which is computed again there, and hides messages too
    one = layers * (forward + backward)
    halves = ("reduce_scatter", "all_gather") if layout.sequence else ("all_reduce",)
    messages = sum(collective(half, layout.tensor, 2 * tokens * shape.width) for half in halves)
    messages *= (4 + 2 * layout.recomputed) * layers * (layout.tensor > 1)
    compute = layout.batches * (one + pace * ends)
    waiting = (layout.pipeline - 1) / layout.chunks * (one + messages)
    mine = held(shape, layout)
    # Adam reads the gradient and three 32-bit numbers, writes these and the weight.
    moved = (layout.gradient + 2 * STATE + WEIGHT) * mine / (layout.data if layout.level else 1)
    return {
        "compute": compute,
        "tensor": layout.batches * messages,
        "bubble": waiting,
        "data": _exposed(shape, layout, collective, mine, layers * forward, layers * backward),
        "update": operation_seconds(0, moved, gpu, "pointwise"),
    }


def _exposed(shape, layout, collective, mine, forward, backward):
    """Return the seconds of the replicas' collectives beside which nothing is computed.

    The embedding comes first in forward and last in backward, so that nothing hides its own messages.
    """
    if layout.data == 1:
        return 0.0

    def seconds(operation, numbers):
        nbytes = numbers * (WEIGHT if operation == "all_gather" else layout.gradient)
        return collective(operation, layout.data * layout.tensor, layout.tensor * nbytes)

    embedding = shape.words * shape.width / layout.tensor
    if layout.level == 0:
        return max(seconds("all_reduce", mine) - backward, seconds("all_reduce", embedding))
    gather, scatter = (seconds(operation, mine) for operation in ("all_gather", "reduce_scatter"))
    first, last = (seconds(operation, embedding) for operation in ("all_gather", "reduce_scatter"))
    if layout.level < 3:
        times = layout.batches if layout.level == 2 else 1  # level 2 has no room to add up whole gradients
        return times * max(scatter - backward, last) + gather
    return layout.batches * (max(gather - forward, first) + max(gather + scatter - backward, last))
