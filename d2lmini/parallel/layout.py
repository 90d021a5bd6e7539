"""Which layout of a transformer over GPUs fits into memory, by formula; `layout_time` has what a step takes.

A layout cuts each layer over `tensor` ranks (the innermost, inside a node), each sequence over `context` ranks, the
batch over `data` replicas and the layers over `pipeline` stages (the outermost). Context ranks hold the same
parameters, so that ZeRO and the gradients' collectives treat them as replicas. With hybrid sharding ZeRO-3 shards over
`shards` neighbours among them, and their groups are replicas of one another. A layer's experts are shared out over
`expert` neighbours among data × context. Numbers have 16 bits; Adam keeps 32-bit parameters and two more numbers for
each.
"""

from dataclasses import dataclass

WEIGHT, STATE = 2, 12  # bytes a parameter: 16-bit weights; 32-bit parameters and Adam's two moments
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
        experts: Feed-forward networks of a layer, as large as a dense layer's one (mixture of experts); 1 is dense.
        chosen: How many of them a token passes.
    """

    width: int
    layers: int
    heads: int
    key_heads: int
    hidden: int
    words: int
    length: int
    tied: bool = False
    experts: int = 1
    chosen: int = 1

    @property
    def keys(self):
        """The width of a token's keys, and of its values."""
        return self.width // self.heads * self.key_heads

    @property
    def attention(self):
        """The (inputs, outputs) of the linear layers of attention, those cut by columns and those cut by rows."""
        return [(self.width, n) for n in (self.width, self.keys, self.keys)], [(self.width, self.width)]

    @property
    def feed_forward(self):
        """The same of one feed-forward network."""
        return [(self.width, self.hidden)] * 2, [(self.hidden, self.width)]

    @property
    def expert(self):
        """The parameters of one feed-forward network."""
        return sum(a * b for cut in self.feed_forward for a, b in cut)

    @property
    def layer(self):
        """The parameters of one layer without its feed-forward networks: attention, two norms, the router."""
        router = self.width * self.experts if self.experts > 1 else 0
        return sum(a * b for cut in self.attention for a, b in cut) + 2 * self.width + router

    @property
    def parameters(self):
        """All parameters."""
        each = self.layer + self.experts * self.expert
        return self.layers * each + (1 if self.tied else 2) * self.words * self.width + self.width


@dataclass(frozen=True)
class Layout:
    """How a step is laid out over ``data × tensor × pipeline × context`` GPUs.

    Attributes:
        data, tensor, pipeline: Replicas, ranks that share a layer, and stages.
        level: Of ZeRO, 0 to 3.
        shards: Ranks, among ``data × context``, over which ZeRO-3 shards (hybrid sharding); 0 is all of them.
        batch: Sequences in a micro-batch.
        batches: Micro-batches of a replica in a step.
        recomputed: The share of forward that backward computes again (activation checkpointing).
        gradient: Bytes of one gradient.
        fused: Whether a norm is one kernel.
        sequence: Whether norms and residuals are split over the tensor ranks too (sequence parallelism).
        chunks: Parts of the model that a stage has (interleaving); 1 is plain 1F1B.
        context: Ranks that share a sequence.
        expert: Ranks, among ``data × context``, that share a layer's experts.
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
    context: int = 1
    expert: int = 1
    shards: int = 0

    @property
    def replicas(self):
        """The ranks that hold the same parameters, experts apart."""
        return self.data * self.context

    @property
    def sharers(self):
        """The ranks over which ZeRO shards."""
        return self.shards or self.replicas

    @property
    def gpus(self):
        """How many GPUs it needs."""
        return self.replicas * self.tensor * self.pipeline


def held(shape, layout):
    """Return the parameters of a rank of the first stage, (all but the experts', the feed-forward networks').

    The first stage has the embedding; a single stage has the logits' weight too.

    Raises:
        ValueError: Tensor ranks do not divide the heads, context ranks the sequence, expert ranks the experts or the
            replicas, the stages' chunks the layers, the shards the replicas, or interleaved stages the micro-batches.
            Hybrid sharding without level 3, or with expert ranks.
    """
    if layout.shards and (layout.level != 3 or layout.expert > 1):
        raise ValueError(f"expected hybrid sharding at ZeRO-3, without expert ranks, got {layout}")
    for parts, whole, what in (
        (layout.tensor, shape.heads, "tensor ranks and heads"),
        (layout.pipeline * layout.chunks, shape.layers, "chunks of all stages and layers"),
        (layout.context, shape.length, "context ranks and tokens of a sequence"),
        (layout.expert, shape.experts, "expert ranks and experts"),
        (layout.expert, layout.replicas, "expert ranks and replicas"),
        (layout.sharers, layout.replicas, "shards and replicas"),
        (layout.pipeline if layout.chunks > 1 else 1, layout.batches, "interleaved stages and micro-batches"),
    ):
        if whole % parts:
            raise ValueError(f"expected {what} to divide evenly, got {parts} and {whole}")
    ends = shape.words * shape.width * (1 if layout.pipeline > 1 or shape.tied else 2)
    layers = shape.layers // layout.pipeline
    experts = layers * shape.experts * shape.expert / layout.expert
    return (layers * shape.layer + ends) / layout.tensor, experts / layout.tensor


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
    shared, experts = held(shape, layout)
    parts = [layout.sharers if layout.level >= level else 1 for level in (3, 2, 1)]
    more = [max(1, part // layout.expert) for part in parts]  # replicas of an expert are fewer
    weights, gradients, state = (shared / n + experts / m for n, m in zip(parts, more))
    one = (shape.layer + shape.experts * shape.expert / layout.expert) / layout.tensor
    gathered = 2 * WEIGHT * one if layout.level == 3 else 0  # this layer, and the next one
    return {
        "weights": WEIGHT * weights + gathered,
        "gradients": layout.gradient * gradients,
        "optimizer": STATE * state,
        "activations": _activations(shape, layout),
    }


def _activations(shape, layout):
    """Return the bytes of the activations of the fullest stage."""
    tokens = layout.batch * shape.length / layout.context
    more = (layout.pipeline - 1) / layout.chunks if layout.chunks > 1 else 0
    under_way = min(layout.pipeline + more, layout.batches)
    width = shape.width / (layout.tensor if layout.sequence else 1)
    # q, k, v and what attention mixes; gate, up, and both after, in each expert that a token passes
    inside = (2 * (2 * shape.width + 2 * shape.keys) + 8 * shape.hidden * shape.chosen) / layout.tensor
    sent = 4 * width * shape.chosen if shape.experts > 1 else 0  # a token for its experts, and what they return
    kept = 2 * width + (1 - layout.recomputed) * (6 * width + inside + sent)
    activations = tokens * kept * shape.layers / layout.pipeline
    # All keys and values of the sequences, and their gradients, of one layer.
    around = 8 * shape.keys / layout.tensor * layout.batch * shape.length if layout.context > 1 else 0
    scores = tokens * SCORE * shape.words / layout.tensor
    first = activations * under_way + (scores if layout.pipeline == 1 else 0)
    return max(first, activations + scores) + around
