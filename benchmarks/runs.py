"""Published training and inference runs, as steps that simulated GPUs take without computing them.

A row names a machine, a network, a precision and a batch, with gaps that its source leaves open. `read` fills them in
as the source's programs do; `simulate` takes one step: forward, backward, the gradients' sum over the GPUs, update.
"""

import contextlib
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from networks import SSD300
from torch.nn.functional import cross_entropy

from d2lmini import sim
from d2lmini.hardware import GPUS, build, collective_costs
from d2lmini.hardware.catalog import gpu_named
from d2lmini.models import GPT2, Bert, bert_large, resnet50

GIB = 2**30


@dataclass(frozen=True)
class Stack:
    """The software of a source. way: a name in `HOST_COSTS`. channels_last: pictures in 16-bit runs are ordered so.

    fused_attention: one kernel. hidden: the share of backward beside which gradients are summed. peer: whether the GPUs
    reach each other's memory; on rented virtual machines they seem not to.
    loaders: for a card's first letters, how many processes decode pictures in inference, and the pictures a second of
    each.
    """

    name: str
    way: str
    channels_last: bool = True
    fused_attention: bool = False
    hidden: float = 1.0
    peer: bool = True
    loaders: dict = field(default_factory=dict, hash=False)


STACKS = {
    "DeepLearningExamples": Stack("PyTorch 1.8, NGC container of 2021", "eager, 2021",
                                  loaders={"V100": (8, 53), "A100": (16, 79)}),
    "Lambda on-demand": Stack("PyTorch, NGC container, Lambda", "eager, 2021", False, hidden=0),
    "deeplearning-benchmark": Stack("PyTorch, NGC container, Lambda", "eager, 2021", False, hidden=0, peer=False),
    "llm.c": Stack("llm.c: C and CUDA", "compiled", fused_attention=True),
    "nanoGPT": Stack("PyTorch 2.0, torch.compile", "compiled", fused_attention=True),
    "torchtitan": Stack("PyTorch 2.6, FSDP2", "eager", fused_attention=True),
}
CARDS = {"V100-16GB": "V100-SXM2-16GB", "V100-32GB": "V100-SXM2-32GB", "A100": "A100-SXM4-80GB",
         "A100-SXM": "A100-SXM4-80GB", "A100-PCIe": "A100-PCIe-80GB", "H100-PCIe": "H100-PCIe-80GB"}  # fmt: skip
PRECISIONS = {"FP32": None, "TF32": "tf32", "AMP": torch.float16, "FP16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Run:
    """One run: `batch` examples at once on each GPU, `accumulate` times before an update; training or inference."""

    network: str
    gpu: str
    count: int
    precision: str
    batch: int
    accumulate: int
    training: bool
    stack: Stack

    @property
    def half(self):
        """Whether numbers have 16 bits."""
        return isinstance(PRECISIONS[self.precision], torch.dtype)


def read(row):
    """Return the `Run` that a row of training_and_links.csv describes; raises ValueError with what is not known."""
    stack = next((stack for key, stack in STACKS.items() if key in f"{row['system']} {row['source']}"), None)
    if stack is None:
        raise ValueError(f"unknown stack {row['system']!r}: choose one of {', '.join(STACKS)}")
    network = next((name for name in TASKS if re.search(name, row["network"], re.IGNORECASE)), None)
    if network is None:
        raise ValueError(f"unknown network {row['network']!r}: choose one of {', '.join(TASKS)}")
    precision = re.match(r"[A-Za-z]+\d*", row["precision"])[0]
    if precision not in PRECISIONS or "fp8" in row["precision"].lower() or "float8" in row["precision"].lower():
        raise ValueError(f"unknown precision {row['precision']!r}: choose one of {', '.join(PRECISIONS)}")
    gpu, count = card(row["gpu"]), int(row["count"])
    if precision == "FP32" and "not stated" in row["precision"] and GPUS[gpu].peak_tensor_tf32_flops_per_s:
        precision = "TF32"  # the default of PyTorch until 1.12
    batch, accumulate = _batch(row["batch"], count, network, precision)
    return Run(network, gpu, count, precision, batch, accumulate, "inference" not in row["network"], stack)


def card(name):
    """Return the catalog's name of a card that a table names in short; raises ValueError for one it does not have."""
    name = re.sub(r"^.*?(?=V100|A100|H100|H200|RTX|T4)", "", name).replace("V100 16GB", "V100-16GB")
    return gpu_named(CARDS.get(name, name)).name


def _batch(text, count, network, precision):
    """Return a GPU's batch and how often it is accumulated; where a source is silent, what its programs' files say."""
    if match := re.match(r"(\d+)(/GPU)?$", text):
        return int(match[1]), 1
    if match := re.match(r"global (\d+)", text):
        return max(1, int(match[1]) // count), 1
    if match := re.search(r"local (\d+)|, (\d+)/GPU", text):
        return int(match[1] or match[2]), 1
    if match := re.search(r"\((\d+)\*1024\*(\d+)\*8\)", text):
        return int(match[1]), int(match[2])
    half = isinstance(PRECISIONS[precision], torch.dtype)
    if "accumulated" in text:  # seq128, seq512
        batch = (64 if half else 32) if "128" in network else (8 if half else 4)
        return batch, (4096 if "128" in network else 2048) // batch
    return 256 if half or precision == "TF32" else 112, 1


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


def _gpt2(run):
    tokens = torch.zeros(run.batch, 1024, dtype=torch.int64)

    def loss(out):
        return cross_entropy(out.flatten(0, 1).float(), tokens.flatten())

    return GPT2(words=50304), tokens, loss, tokens.numel()


TASKS = {
    "ResNet-50": _pictures(lambda: resnet50(late_stride=True), 224),
    "SSD300": _boxes,
    "BERT-large pretrain seq128": _bert(bert_large, 128, guessed=20),
    "BERT-large pretrain seq512": _bert(bert_large, 512, guessed=80),
    "BERT-large SQuAD": _bert(bert_large, 384),
    "BERT-base SQuAD": _bert(Bert, 384),
    "GPT-2 124M": _gpt2,
}


# -- one step --------------------------------------------------------------------------------------------------------


def simulate(run):
    """Return examples a second (pictures, sequences or tokens) of all GPUs together."""
    step = one_gpu(replace(run, count=1))
    if not run.training:
        return _loaded(run, step.examples / step.forward_s)
    summed = gradients_seconds(run, step.gradient_bytes)
    exposed = max(0.0, summed - run.stack.hidden * 2 / 3 * step.forward_s)
    seconds = run.accumulate * step.forward_s + step.update_s + exposed
    return run.count * run.accumulate * step.examples / seconds


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
        sim.enable(machine=build(1, run.gpu), memory=10**13, shapes_only=True, way=run.stack.way)
        with torch.device("sim:0"):
            model, x, loss, examples = TASKS[run.network](run)
            if not run.training:
                return Step(examples, _inference_seconds(model, x, cast), 0.0, 0)
            micro, update = _training_seconds(model, x, loss, cast, "SQuAD" in run.network and not run.half)
    halved = run.half and "BERT" in run.network  # as NVIDIA's programs for BERT do
    return Step(examples, micro, update, sum(p.numel() for p in model.parameters()) * (2 if halved else 4))


def _loaded(run, rate):
    """Return the smaller of a rate and what the loader's processes decode, in pictures a second."""
    workers = run.stack.loaders.get(run.gpu[:4])
    return min(rate, workers[0] * workers[1]) if workers else rate


def _inference_seconds(model, x, cast):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            with sim.trace() as trace:
                with cast():
                    model(x)
                torch.sim.synchronize()
    return trace.seconds


def _training_seconds(model, x, loss, cast, one_by_one):
    """Return the seconds of forward and backward, and of the update, which Adam does `one_by_one` or in one kernel."""
    if x.dim() == 4:
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=not one_by_one)
    for _ in range(2):
        with sim.trace() as micro:
            with cast():
                value = loss(model(x))
            value.backward()
            torch.sim.synchronize()
        with sim.trace() as update:
            optimizer.step()
            torch.sim.synchronize()
        optimizer.zero_grad()
    return micro.seconds, update.seconds


def gradients_seconds(run, nbytes):
    """Return the seconds of summing `nbytes` of gradients over the run's GPUs."""
    if run.count == 1:
        return 0.0
    machine = build(run.count, run.gpu) if run.stack.peer else build(run.count, run.gpu, "PCIe3-x16")
    return collective_costs.seconds("all_reduce", machine, run.count, nbytes)


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
