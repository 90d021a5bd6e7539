"""Published training and inference runs, as steps that simulated GPUs take without computing them.

A row names a machine, a network, a precision and a batch, with gaps that its source leaves open. `read` fills them in
as the source's programs do; `simulate` takes one step: forward, backward, the gradients' sum over the GPUs, update.
"""

import contextlib
import re
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import stacks
import torch
from bert import Bert
from networks import GNMT, SSD300, TransformerXL, efficientnet, resnext101, vgg16
from stacks import PRECISIONS, STACKS, Stack, card
from torch.nn.functional import cross_entropy

import simgpu
from d2lmini.models import GPT2, WIDTHS_2014, Llama, alexnet, resnet50
from simgpu.hardware import GPUS, MACHINES, build, cluster, collective_costs
from simgpu.hardware.links import host_link, nvlink

__all__ = ["STACKS", "Run", "card", "one_gpu", "read", "simulate"]


@dataclass(frozen=True)
class Run:
    """One run: `batch` examples at once on each GPU, `accumulate` times before an update; training or inference.

    assumed: what the row leaves open and was filled in, in words.
    """

    network: str
    gpu: str
    count: int
    precision: str
    batch: int
    accumulate: int
    training: bool
    stack: Stack
    assumed: tuple = ()

    @property
    def half(self):
        """Whether numbers have 16 bits."""
        return stacks.half(self.precision)


def read(row):
    """Return the `Run` that a row of training_and_links.csv describes; raises ValueError with what is not known."""
    row, moved = stacks.of_its_table(row)
    stack, network = stacks.stack(f"{row['system']} {row['gpu']}", row["source"]), _network(row["network"])
    gpu, named = stacks.named_card(row["gpu"])
    name, taken = stacks.precision(row["precision"], gpu)
    count = _count(row["count"])
    batch, accumulate, filled = stacks.batch(row["batch"], count, network, name, stack, gpu)
    training = not re.search("infer|eval", row["network"] + row["metric"], re.IGNORECASE)
    assumed = tuple(filter(None, (moved, named, taken, filled)))
    return Run(network, gpu, count, name, batch, accumulate, training, stack.beside(gpu), assumed)


def _network(text):
    """Return the name in `TASKS` that a row's words contain, however they are joined."""
    found = [name for name in TASKS if _squeezed(name) in _squeezed(text)]
    if not found or "modded" in text:
        raise ValueError(f"unknown network {text!r}: choose one of {', '.join(TASKS)}")
    return max(found, key=len)


P5 = "p5.48xlarge"


def on_p5(system, gpu):
    """Return whether a row's system is a cluster of Amazon's nodes with H100s; Hugging Face's is one."""
    return gpu == MACHINES[P5].gpu.name and bool(re.search(r"\bEFA\b|\bHF cluster\b|\bp5\b", system))


def _squeezed(text):
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _count(text):
    if not re.fullmatch(r"[1-9]\d*(\.0*)?", text):
        raise ValueError(f"expected a number of GPUs of at least 1, got {text!r}")
    return int(float(text))


def unit(network):
    """Return what a network's rates count: images, sequences or tokens."""
    if network.startswith("BERT"):
        return "sequences"
    return "tokens" if network.startswith(("GPT-2", "GNMT", "Llama", "Transformer")) else "images"


# -- what is trained -------------------------------------------------------------------------------------------------


def _pictures(model, size):
    def make(run):
        x = torch.empty(run.batch, 3, size, size)
        last = run.stack.channels_last and run.half
        made = model()
        if last:
            made, x = made.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        return made, x, lambda out: cross_entropy(out, torch.zeros(out.shape[0], dtype=torch.int64)), run.batch

    return make


def _boxes(run):
    model, x, _, count = _pictures(SSD300, 300)(run)
    return model, x, lambda out: sum(part.float().square().mean() for part in out), count


def _bert(make, length, guessed=0):
    """Return what makes BERT: with scores of all words for `guessed` positions, else of an answer's start and end."""

    def prepare(run):
        model = make(fused=run.stack.fused_attention)
        width = model.words.embedding_dim
        model.head = torch.nn.Linear(width, model.words.num_embeddings if guessed else 2)
        tokens = torch.zeros(run.batch, length, dtype=torch.int64)

        def loss(out):
            x = out[0][:, :guessed].flatten(0, 1) if guessed else out[0]
            scores = model.head(x).float()
            scores = scores if guessed else scores.transpose(1, 2).flatten(0, 1)
            return cross_entropy(scores, torch.zeros(scores.shape[0], dtype=torch.int64))

        return model, tokens, loss, run.batch

    return prepare


def _gpt2(**sizes):
    def prepare(run):
        tokens = torch.zeros(run.batch, 1024, dtype=torch.int64)

        def loss(out):
            return cross_entropy(out.flatten(0, 1).float(), tokens.flatten())

        return GPT2(words=run.stack.words, **sizes), tokens, loss, tokens.numel()

    return prepare


# A sentence of WMT16 in GNMT: words, and the places that they are filled up to in a batch of alike ones; both assumed.
_WORDS, _PLACES = 25, 30


def _translation(run):
    """Return what makes GNMT; its rates count the words of both languages, but not what fills a batch up."""
    words = torch.zeros(_PLACES, run.batch, dtype=torch.int64)

    def loss(out):
        return cross_entropy(out.flatten(0, 1).float(), words.flatten(), label_smoothing=0.1)

    return GNMT(), words, loss, 2 * _WORDS * run.batch


def _transformer_xl(length, **sizes):
    def prepare(run):
        model, words = TransformerXL(**sizes), torch.zeros(length, run.batch, dtype=torch.int64)
        return model, words, model.loss, words.numel()

    return prepare


def _llama(**sizes):
    def prepare(run):
        tokens = torch.zeros(run.batch, 4096, dtype=torch.int64)
        return Llama(**sizes), tokens, lambda out: cross_entropy(out.flatten(0, 1).float(), tokens.flatten()), 4096

    return prepare


BERT_LARGE = partial(Bert, width=1024, layers=24, heads=16)
TASKS = {
    "GNMT": _translation,
    "ResNet-50": _pictures(lambda: resnet50(late_stride=True), 224),
    "ResNet-101": _pictures(lambda: resnet50(late_stride=True, depths=(3, 4, 23, 3)), 224),
    "ResNet-152": _pictures(lambda: resnet50(late_stride=True, depths=(3, 8, 36, 3)), 224),
    "ResNeXt-101": _pictures(resnext101, 224),
    "SE-ResNeXt-101": _pictures(lambda: resnext101(squeeze=True), 224),
    "EfficientNet-B0": _pictures(efficientnet, 224),
    "EfficientNet-B4": _pictures(lambda: efficientnet(1.4, 1.8), 380),
    "VGG-16": _pictures(vgg16, 224),
    "AlexNet": _pictures(partial(alexnet, dropout=0.5, widths=WIDTHS_2014), 224),
    "SSD300": _boxes,
    "BERT-large pretrain seq128": _bert(BERT_LARGE, 128, guessed=20),
    "BERT-large pretrain seq512": _bert(BERT_LARGE, 512, guessed=80),
    "BERT-large SQuAD": _bert(BERT_LARGE, 384),
    "BERT-base pretrain seq128": _bert(Bert, 128, guessed=20),
    "BERT-base pretrain seq512": _bert(Bert, 512, guessed=80),
    "BERT-base SQuAD": _bert(Bert, 384),
    "Transformer-XL base": _transformer_xl(192, width=512, layers=16, heads=8, hidden=2048),
    "Transformer-XL large": _transformer_xl(384, width=1024, layers=18, heads=16, hidden=4096, shrink=4),
    "Llama-like 1B": _llama(width=2048, layers=16, heads=32, key_heads=8, hidden=8192),  # Llama 3.2's shape
    "GPT-2 124M": _gpt2(),
    "GPT-2 medium": _gpt2(width=1024, layers=24, heads=16),
    "GPT-2 large": _gpt2(width=1280, layers=36, heads=20),
    "GPT-2 XL": _gpt2(width=1600, layers=48, heads=25),
}
TASKS |= {
    f"GPT-2 {size}": TASKS[f"GPT-2 {name}"]
    for size, name in (("350M", "medium"), ("355M", "medium"), ("774M", "large"), ("1558M", "XL"), ("1.5B", "XL"))
}


# -- one step --------------------------------------------------------------------------------------------------------


def simulate(run):
    """Return examples a second (pictures, sequences or tokens) of all GPUs together."""
    step = one_gpu(replace(run, count=1))
    if not run.training:
        return run.count * step.examples / step.forward_s
    summed = gradients_seconds(run, step.gradient_bytes)
    exposed = max(0.0, summed - run.stack.hidden * 2 / 3 * step.forward_s)
    seconds = run.accumulate * step.forward_s + step.update_s + exposed
    return run.count * run.accumulate * step.examples / seconds


def examples(run):
    """Return how many examples one update of all GPUs takes in."""
    return run.count * run.accumulate * one_gpu(replace(run, count=1)).examples


@dataclass(frozen=True)
class Step:
    """What one GPU does: examples, seconds of forward (and backward when training) and of the update, gradients."""

    examples: int
    forward_s: float
    update_s: float
    gradient_bytes: int


@lru_cache
def one_gpu(run):
    """Return the `Step` of one GPU of a run, its memory taken to suffice."""
    with precision(run.precision) as cast:
        simgpu.enable(machine=build(1, run.gpu), memory=10**13, shapes_only=True, mode=run.stack.mode)
        with torch.device("sim:0"):
            model, x, loss, examples = TASKS[run.network](run)
            if not run.training:
                return Step(examples, _inference_seconds(model, x, cast), 0.0, 0)
            one_by_one = ("SQuAD" in run.network and not run.half) or run.network.startswith(("GNMT", "Transformer"))
            micro, update = _training_seconds(model, x, loss, cast, one_by_one, run.stack.lists)
    halved = run.half and ("BERT" in run.network or run.network == "GNMT")  # as NVIDIA's programs for BERT and GNMT do
    return Step(examples, micro, update, sum(p.numel() for p in model.parameters()) * (2 if halved else 4))


def _inference_seconds(model, x, cast):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            with simgpu.trace() as trace:
                with cast():
                    model(x)
                torch.sim.synchronize()
    return trace.seconds


def _training_seconds(model, x, loss, cast, one_by_one, lists):
    """Return the seconds of forward and backward, and of the update.

    Adam does that `one_by_one` or in one kernel, SGD over `lists` or one by one.
    """
    if x.dim() == 4:
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=lists)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=not one_by_one, foreach=False)
    for _ in range(2):
        with simgpu.trace() as micro:
            with cast():
                value = loss(model(x))
            value.backward()
            torch.sim.synchronize()
        with simgpu.trace() as update:
            optimizer.step()
            torch.sim.synchronize()
        optimizer.zero_grad()
    return micro.seconds, update.seconds


def gradients_seconds(run, nbytes):
    """Return the seconds of summing `nbytes` of gradients over the run's GPUs."""
    if run.count == 1:
        return 0.0
    found = machine(run.gpu, run.count, run.stack.peer, run.stack.nodes)
    return collective_costs.seconds("all_reduce", found, run.count, nbytes)


def machine(gpu, count, peer=True, nodes=None, most=16):
    """Return a node of up to `most` GPUs, or nodes of the kind in `MACHINES` that cards of this generation come in.

    nodes: the name of that kind; Amazon's are asked for by name. Raises ValueError where none is known.
    """
    if nodes and count > 8:
        return cluster(MACHINES[nodes], -(-count // 8))
    if count <= most:
        return build(count, gpu) if peer else build(count, gpu, host_link(GPUS[gpu]))
    alike = [
        node
        for node in MACHINES.values()
        if node.gpu.generation == GPUS[gpu].generation and node.count == 8 and "EFA" not in node.network.name
    ]
    own = [node for node in alike if node.gpu.name == gpu]
    if not alike or not nvlink(GPUS[gpu]):
        known = ", ".join(node.gpu.name for node in MACHINES.values() if node.adapters)
        raise ValueError(f"no machine with {gpu} and a network is known: choose one of {known}, or up to {most} GPUs")
    return cluster(replace((own or alike)[0], gpu=GPUS[gpu]), -(-count // 8))


@contextlib.contextmanager
def precision(name):
    """Set torch's switches as a run of this precision has them; yields what makes the context of its forward pass."""
    given = PRECISIONS[name]
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if given == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = given == "tf32"
    cast = isinstance(given, torch.dtype)
    try:
        yield lambda: torch.autocast("sim", given) if cast else contextlib.nullcontext()
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
