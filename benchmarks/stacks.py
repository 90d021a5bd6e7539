"""What the words of a published row mean: the software behind it, its card, its precision, its batch.

A source leaves gaps. They are filled as the source's own programs fill them, and what was filled in is told beside the
prediction; where nothing is known the row is refused, with what there is to choose from.
"""

import re
from dataclasses import dataclass, field, replace

import torch

from simgpu.hardware import GPUS
from simgpu.hardware.arguments import find


@dataclass(frozen=True)
class Stack:
    """The software of a source, as far as its time depends on it.

    mode: a name in `HOST_COSTS`. hosts: another one beside cards whose names begin so. source: where the rest is from,
    and what was read off the rows themselves.
    channels_last: pictures in 16-bit runs are ordered so. fused_attention: one kernel. hidden: the share of backward
    beside which gradients are summed. peer: whether the GPUs reach each other's memory. nodes: the one of `MACHINES`
    that clusters consist of, by default the maker's own. lists: whether SGD steps over lists of tensors, as PyTorch
    does from 2.0 on. words: of GPT-2, whose own 50,257 are no multiple of 8.
    batches: for a network and a precision, {a card's GiB: its batch} where a row tells none; 0 GiB is any card.
    """

    name: str
    mode: str
    source: str
    channels_last: bool = True
    fused_attention: bool = False
    hidden: float = 1.0
    peer: bool = True
    nodes: str | None = None
    lists: bool = False
    words: int = 50304
    batches: dict = field(default_factory=dict, hash=False)
    hosts: dict = field(default_factory=dict, hash=False)

    def beside(self, gpu):
        """Return the stack on the host of this card."""
        return replace(self, mode=next((mode for card, mode in self.hosts.items() if gpu.startswith(card)), self.mode))


# Lambda runs NVIDIA's programs, but without --memory-format nhwc. Its settings have a file for each size of memory.
_LAMBDA = (
    "lambdal/deeplearning-benchmark, pytorch/scripts: batches and layout in config_v2/config_pytorch_*GB.sh; "
    "benchmark_pytorch.sh sets NCCL_P2P_DISABLE=1, so that GPUs do not reach each other's memory; that "
    "gradients are not hidden: the rows"
)
_GIB = (80, 96, 140, 192)
_LAMBDA_BATCHES = {
    (network, name): dict(zip(_GIB, batches))
    for network, in_16_bits, in_32 in (
        ("ResNet-50", (1280, 1360, 2560, 3328), (640, 720, 1280, 1664)),
        ("SSD300", (448, 480, 896, 1152), (256, 272, 512, 640)),
        ("BERT-large SQuAD", (112, 152, 192, 256), (64, 80, 96, 128)),
        ("BERT-base SQuAD", (320, 384, 592, 768), (172, 208, 296, 384)),
        ("GNMT", (1520,), (1024,)),
    )
    for name, batches in (("AMP", in_16_bits), ("FP16", in_16_bits), ("FP32", in_32), ("TF32", in_32))
}
# Of a DGX-1 with 16 or 32 GiB a card, else of a DGX A100.
_NVIDIA_BATCHES = {
    ("ResNet-50", "AMP"): {0: 256},
    ("ResNet-50", "TF32"): {0: 256},
    ("ResNet-50", "FP32"): {0: 112},
    ("ResNeXt-101", "AMP"): {0: 128},
    ("ResNeXt-101", "TF32"): {0: 128},
    ("ResNeXt-101", "FP32"): {0: 64},
    ("SE-ResNeXt-101", "AMP"): {16: 112, 32: 112, 0: 128},
    ("SE-ResNeXt-101", "TF32"): {0: 128},
    ("SE-ResNeXt-101", "FP32"): {0: 64},
    ("EfficientNet-B0", "AMP"): {16: 128, 0: 256},
    ("EfficientNet-B0", "TF32"): {0: 256},
    ("EfficientNet-B0", "FP32"): {16: 64, 0: 128},
    ("EfficientNet-B4", "AMP"): {16: 32, 32: 64, 0: 128},
    ("EfficientNet-B4", "TF32"): {0: 64},
    ("EfficientNet-B4", "FP32"): {16: 16, 0: 32},
}
_NANO = Stack(
    "PyTorch 2.0, torch.compile",
    "compiled",
    "its README, train.py",
    fused_attention=True,
    lists=True,
    batches={("GPT-2 124M", "bf16"): {0: 12}},
)
STACKS = {
    "DeepLearningExamples": Stack(
        "PyTorch, NGC containers of 2020 and 2021",
        "eager, 2021",
        "PyTorch/Classification/ConvNets/configs.yml: batches, nhwc with AMP, made-up pictures",
        batches=_NVIDIA_BATCHES,
        hosts={"A100": "eager, 2021, DGX A100"},
    ),
    "deeplearning-benchmark": Stack(
        "PyTorch, NGC container, Lambda",
        "eager, 2021",
        _LAMBDA,
        False,
        hidden=0,
        peer=False,
        batches=_LAMBDA_BATCHES,
    ),
    "llm.c": Stack("llm.c: C and CUDA", "compiled", "its README; its kernels are fused by hand", fused_attention=True),
    "torch 2.0 nightly": replace(
        _NANO,
        words=50257,
        source="nanoGPT before 3 February 2023, when its author made the "
        "words 50,304 (x.com/karpathy/status/1621578354024677377)",
    ),
    "nanoGPT": _NANO,
    "nanotron": Stack(
        "PyTorch, nanotron",
        "eager",
        "its network: aws-ofi-nccl; one sequence a GPU, no accumulation: assumed",
        fused_attention=True,
        nodes="p5.48xlarge",
        lists=True,
        batches={("Llama-like 1B", "bf16"): {0: 1}},
    ),
    "torchtitan": Stack(
        "PyTorch 2.6, FSDP2", "eager", "benchmarks/llama3_h100_202412_torchtitan.md", fused_attention=True, lists=True
    ),
}
_OTHERS = re.compile(r"tensorflow|mxnet|paddle|jax", re.IGNORECASE)  # NVIDIA's collection holds their programs too


def stack(system, source):
    """Return the `Stack` that a row's system and source name; raises ValueError where there is none."""
    found = next((stack for key, stack in STACKS.items() if key in f"{system} {source}"), None)
    if found is None or _OTHERS.search(source):
        raise ValueError(f"unknown stack {system!r}, {source[:60]!r}: choose one of {', '.join(STACKS)}")
    return found


# -- cards -----------------------------------------------------------------------------------------------------------

_IDLE = (
    r"nvidia|geforce|tesla|quadro|rtx|gtx|lambda(cloud)?|tensor core|hbm\w*|nvlink|gpus?|gen ?\d|\b\d+ ?[x×] ?|"
    r"\b(dell|smc|1cc|[dh]gx)\b"
)  # makers and sellers of machines
_REFUSED = {  # cards that tables name, and why the catalog lacks them
    "mi3": "no share of an AMD card's figures was fitted, and its matrix cores have other tiles",
    "nvl": "no data sheet of the H100 NVL was at hand: other tables give three rates for its tensor cores",
    "a10g": "no data sheet of the A10G was at hand: other tables disagree on its multiprocessors",
    "tpu": "a TPU is no GPU: its arrays have other limits",
}
_USUAL = (
    "V100-SXM2-16GB",
    "V100-SXM2-32GB",
    "A100-SXM4-80GB",
    "A100-SXM4-40GB",
    "A100-PCIe-80GB",
    "H100-SXM5-80GB",
    "P100-PCIe-16GB",
)


def card(name):
    """Return the catalog's name of a card that a table names in its own way; raises ValueError for one it lacks."""
    return named_card(name)[0]


def named_card(name):
    """Return the catalog's name of a card, and what was assumed where several have that name, or None."""
    words = _words(name)
    exact = [gpu for gpu in GPUS if _words(gpu) == words]
    alike = exact or [
        gpu for gpu in GPUS.values() if words and words <= _all_words(gpu) and "ti" not in _words(gpu.name) - words
    ]
    alike = exact or [gpu.name for gpu in alike]
    usual = next((gpu for gpu in _USUAL if gpu in alike), alike[0] if len(alike) == 1 else None)
    reason = next((why for start, why in _REFUSED.items() if any(word.startswith(start) for word in words)), None)
    if usual is None and reason:
        raise ValueError(f"cannot predict {name!r}: {reason}; choose one of {', '.join(_USUAL)}, ...")
    if usual is None:
        return find(GPUS, name, "GPU").name, None
    return usual, f"{name} is the {usual}" if len(alike) > 1 else None


def _words(name):
    text = re.sub(_IDLE, " ", name.lower())
    text = re.sub(r"(\d{4})(ti|super|ada)\b", r"\1 \2", text)
    return frozenset(re.findall(r"[a-z0-9]+", re.sub(r"(\d) gb\b", r"\1gb", text)))


def _all_words(gpu):
    """Return the words by which a card may be told: its name, its memory, its socket."""
    socket = {"sxm"} if "SXM" in gpu.name else {"pcie"}
    return _words(gpu.name) | {f"{gpu.memory_bytes // 2**30}gb"} | socket


_README = re.compile(r"resnet50v1\.5/README\.md L(\d+)")


def of_its_table(row):
    """Return a row of NVIDIA's ResNet-50 inference with the card under which its README has it, and a note or None.

    In commit 729963dd lines 624 to 655 stand under "NVIDIA DGX-1 (1x V100 16GB)", those after them under "NVIDIA T4",
    all of them in float32 or mixed precision: so says another version of the file, whose tables lie as far apart.
    Collections of these rows name an A100 and a V100 instead.
    """
    lines = _README.search(row["source"])
    if not lines or "inference" not in row["network"] or int(lines[1]) < 624:
        return row, None
    gpu, precision = "V100-16GB" if int(lines[1]) < 656 else "T4", row["precision"].replace("TF32", "FP32")
    told = None if gpu == row["gpu"] else f"its source has it under {gpu}, not {row['gpu']}"
    return row | {"gpu": gpu, "precision": precision}, told


# -- precision and batch ---------------------------------------------------------------------------------------------

PRECISIONS = {"FP32": None, "TF32": "tf32", "AMP": torch.float16, "FP16": torch.float16, "bf16": torch.bfloat16}
_SPELLED = {
    "fp8|float8|int8|fp4|e4m3|e5m2": None,
    "tf32": "TF32",
    "bf16|bfloat16": "bf16",
    "amp|mixed": "AMP",
    "fp16|float16|half": "FP16",
    "fp32|float32|single": "FP32",
}


def precision(text, gpu):
    """Return a name in `PRECISIONS`, and what was assumed, or None; raises ValueError for another precision."""
    plain = re.sub(r"\(.*?\)", "", text.lower()) or text.lower()
    found = next((name for words, name in _SPELLED.items() if re.search(words, plain)), None)
    if found is None:
        raise ValueError(f"unknown precision {text!r}: choose one of {', '.join(PRECISIONS)}")
    if found == "FP32" and "not stated" in text and GPUS[gpu].peak_tensor_tf32_flops_per_s:
        return "TF32", "FP32 is TF32, PyTorch's default until 1.12"
    return found, None


def half(name):
    """Return whether a precision's numbers have 16 bits."""
    return isinstance(PRECISIONS[name], torch.dtype)


_BATCHES = (r"^(\d+) ?(?:/ ?GPU|per GPU)?$", r"local (\d+)|, (\d+)/GPU", r"(?:bs|batch(?: size)?)[ =]?(\d+)")


def batch(text, count, network, name, stack, gpu):
    """Return a GPU's batch, how often it is accumulated, and what was assumed or None.

    name, gpu: a precision's and a card's. Raises ValueError where neither the row nor the stack's own programs tell a
    batch.
    """
    text = text.replace(",000", "000")
    if match := re.match(r"global (\d+)", text):
        return max(1, int(match[1]) // count), 1, None
    if match := re.search(r"\((\d+)\*1024\*(\d+)\*8\)", text):
        return int(match[1]), int(match[2]), None
    if match := next(filter(None, (re.search(pattern, text, re.IGNORECASE) for pattern in _BATCHES)), None):
        found = int(next(filter(None, match.groups())))
        return _positive(found, text), _rounds(text, count, found), None
    if "accumulated" in text and "pretrain" in network:  # PyTorch/LanguageModeling/BERT/scripts/configs
        long = "512" in network
        found = (16 if half(name) else 8) if long else (64 if half(name) else 32)
        return found, (2048 if long else 4096) // found, f"batch {found}, of its program's settings"
    gib = GPUS[gpu].memory_bytes / 2**30
    settings = stack.batches.get((network, name), {})
    found = next((size for memory, size in settings.items() if not memory or abs(gib / memory - 1) < 0.1), None)
    if found is None:
        raise ValueError(
            f"expected a batch's size in the column batch, got {text!r}, and {stack.name} sets none for "
            f"{network} in {name} with {gib:.0f} GiB"
        )
    return found, _rounds(text, count, found), f"batch {found}, of its program's settings"


def _rounds(text, count, size):
    """Return how often GPT-2's batches of 1024 tokens are accumulated, where a text tells the tokens of an update."""
    tokens = re.match(r"(\d+) tokens", text)
    return max(1, round(int(tokens[1]) / (count * size * 1024))) if tokens else 1


def _positive(number, text):
    if number < 1:
        raise ValueError(f"expected a batch of at least 1, got {text!r}")
    return number
