"""What an operation or a copy costs: host time to launch it, the roofline on the GPU, α + bytes ÷ β on a link.

    host    ├─ Python ─ dispatcher ─ autograd ─┼─ launch ─┤            HOST_COSTS, by execution mode
    GPU                                        └─ fixed part ─┤ max(FLOPs ÷ rate, bytes ÷ bandwidth) ├

The GPU's rates are shares of its peak and of its memory's bandwidth (`shares`). Matrix multiplications and
convolutions, whose shapes decide, are worked out from their tiles (`gemm`). The host goes on after the launch, so the
GPU idles where the host takes longer than the operation: small batches, small networks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simgpu.hardware.arguments import not_negative
from simgpu.hardware.gemm import Gemm, gemm_seconds
from simgpu.hardware.gpus import GPU
from simgpu.hardware.links import Link
from simgpu.hardware.shares import shares
from simgpu.hardware.topology import Hop

ARITHMETIC = ("gemm", "conv", "attention")
MEMORY = ("pointwise", "reduction", "gather")
TYPES = {
    "float64": 8,
    "complex128": 16,
    "complex64": 8,
    "float32": 4,
    "tf32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
}

# The driver's part of a launch: back-to-back launches of a 2.9 µs kernel took 3.8 µs each on a V100
# (Gray, "Getting Started with CUDA Graphs", NVIDIA technical blog, 2019).
LAUNCH_S = 3.8e-6
# A view that indexing makes, `x[0]`, costs PyTorch's own part of a call and no launch. On a CPU it took 0.8 µs where
# nn.ReLU with autograd took 3.7 (PyTorch 2.13, fastest of seven runs); that it is so on every host is assumed.
INDEX_SHARE = 0.2
KERNEL_S = 2e-6  # assumed: the shortest kernel; starting blocks and draining the pipeline, with no work to do
# What convolutions feed to tensor cores: FLOPs a clock of each multiprocessor, times the bytes of a number. Fitted on
# half of Lambda's rows of ResNet-50 on H100, those of 1, 2 and 8 GPUs; Volta's share comes to as much, 1552. Patches
# are gathered number by number: cores twice as fast gain nothing.
CONV_OPERANDS = 1590
# A copy's α is two things: the copy engine fetches and starts the next copy of a stream, and the link's own latency.
# 4 bytes from GPU to GPU over NVLink took 1.8 to 2.6 µs each, queued one after the other (p2pBandwidthLatencyTest,
# github.com/NVIDIA/cuda-samples/issues/230); NVLink's own share of that is 0.6.
COPY_S = 1.6e-6
# Packet headers, flow control: what copies and collectives reach of a link's rate. NCCL counts on 12 of PCIe 3's 15.75
# GB/s, 20 of NVLink 3's 25, 20.6 of NVLink 4's 25 (src/graph/topo.h). Network packets are longer: its maintainers
# expect 46 to 48 GB/s of an adapter of 50 (github.com/NVIDIA/nccl-tests/issues/290).
LINK_SHARE, NETWORK_SHARE = 0.8, 0.94
PAGEABLE_SHARE = 0.5  # memory that may be paged out is copied once more, by the host, into a pinned buffer
# Through the host a driver copies in chunks, one on its way in while the next is on its way out. Eight H100s without
# peer access reached 37.2 GB/s over PCIe 5 (github.com/NVIDIA/nccl/issues/1264): a chunk of 1 MiB (assumed) then loses
# 7.4 µs while it changes hands, which also accounts for most of the 11 to 20 µs that 4 bytes take by that way (#230).
STAGING_BYTES, STAGING_S = 2**20, 7.4e-6


def operation_seconds(
    flops: float, nbytes: float, gpu: GPU, kind: str, dtype: str = "float32", gemms: Iterable[Gemm] = ()
) -> float:
    """Return the seconds for which one operation occupies a GPU.

    Args:
        flops: Multiplications and additions, counted apart.
        nbytes: Bytes read and written in the GPU's memory.
        gpu: The GPU.
        kind: One of `ARITHMETIC` or `MEMORY`.
        dtype: The operands' type, named as torch does without "torch.", or "tf32".
        gemms: The matrix multiplications that it consists of; without them, large ones are assumed.

    Raises:
        ValueError: The kind is unknown, or a count is negative or not finite.
    """
    if kind not in ARITHMETIC and kind not in MEMORY:
        raise ValueError(f"unknown kind of operation {kind!r}: choose one of {', '.join([*ARITHMETIC, *MEMORY])}")
    not_negative("an operation's FLOPs", flops)
    not_negative("an operation's bytes", nbytes)
    peak, share = peak_flops_per_s(gpu, kind, dtype), arithmetic_share(gpu, kind, dtype)
    if gemms:
        return sum(gemm_seconds(gemm, gpu, peak * share, TYPES.get(dtype, 4)) for gemm in gemms)
    arithmetic = flops / (peak * share)
    traffic = nbytes / (gpu.memory_bytes_per_s * memory_share(gpu, kind))
    return KERNEL_S + max(arithmetic, traffic)


def arithmetic_share(gpu: GPU, kind: str, dtype: str = "float32") -> float:
    """Return the share of `peak_flops_per_s` that a GPU reaches, 0 to 1; 1 for kinds whose bytes decide.

    Args:
        gpu: The GPU.
        kind: One of `ARITHMETIC` or `MEMORY`.
        dtype: As in `operation_seconds`.
    """
    share, tensor = shares(gpu), _tensor_peak(gpu, dtype) if kind in ("gemm", "conv") else None
    if tensor and kind == "conv":
        fed = CONV_OPERANDS / TYPES[dtype] * gpu.multiprocessors * gpu.clock_hz
        return min(share.conv_tensor, fed / tensor)
    product = share.arithmetic if tensor else share.ordinary
    return {"gemm": product, "conv": share.conv, "attention": share.attention}.get(kind, 1)


def memory_share(gpu: GPU, kind: str) -> float:
    """Return the share of its memory's bandwidth that a GPU reaches, 0 to 1, in operations of this kind."""
    share = shares(gpu)
    return {"gather": share.gather, "gemm": share.traffic, "conv": share.traffic}.get(kind, share.stream)


def peak_flops_per_s(gpu: GPU, kind: str, dtype: str = "float32") -> float:
    """Return the peak rate that a GPU offers to an operation.

    Tensor cores serve matrix multiplications, convolutions and attention in 16-bit types and in "tf32", where the card
    has them, and matrix multiplications of 8-bit numbers. Everything else runs on the ordinary cores; float64 at the
    card's ratio.

    Args:
        gpu: The GPU.
        kind: One of `ARITHMETIC` or `MEMORY`.
        dtype: As in `operation_seconds`.

    Raises:
        ValueError: The type has 8 bits, and the card has no tensor cores for it.
    """
    if dtype in ("float64", "complex128"):
        return gpu.peak_fp32_flops_per_s * gpu.fp64_ratio
    return (kind in ARITHMETIC and _tensor_peak(gpu, dtype)) or gpu.peak_fp32_flops_per_s


def _tensor_peak(gpu: GPU, dtype: str) -> float | None:
    """Return the peak rate of the tensor cores for a type, None where they do not know it."""
    if dtype == "float16" or (dtype == "bfloat16" and gpu.bf16):
        return gpu.peak_tensor_16_flops_per_s
    if dtype == "tf32":
        return gpu.peak_tensor_tf32_flops_per_s
    return gpu.peak_8_bit_flops_per_s(dtype) if TYPES.get(dtype) == 1 else None


def payload_bytes_per_s(link: Link) -> float:
    """Return the rate at which a link carries a program's bytes in one direction: its own less packet headers."""
    share = LINK_SHARE if link.name.lstrip("0123456789×").startswith(("PCIe", "NVLink")) else NETWORK_SHARE
    return link.bytes_per_s_per_direction * share


def copy_seconds(nbytes: float, link: Link, pinned: bool = True) -> float:
    """Return the seconds for which a copy occupies a link: α + bytes ÷ β.

    Args:
        nbytes: The bytes of the copy.
        link: The link.
        pinned: False for a copy from or to pageable host memory, which moves at half the rate.

    Raises:
        ValueError: `nbytes` is negative or not finite.
    """
    not_negative("a copy's bytes", nbytes)
    rate = payload_bytes_per_s(link) * (1 if pinned else PAGEABLE_SHARE)
    return COPY_S + (link.latency_s or 0) + nbytes / rate


def hop_seconds(nbytes: float, hops: Sequence[Hop], pinned: bool = True) -> list[tuple[float, float]]:
    """Return (delay, seconds) of each hop of a copy: when it starts, after the hop before it, and how long it takes.

    One hop starts at once; the second, from the host on, when the first chunk is there.

    Args:
        nbytes: The bytes of the copy.
        hops: One or two, as `Machine.route` returns them.
        pinned: As in `copy_seconds`.
    """
    whole = [copy_seconds(nbytes, hop.link, pinned) for hop in hops]
    if len(hops) == 1:
        return [(0.0, whole[0])]
    first = copy_seconds(min(nbytes, STAGING_BYTES), hops[0].link, pinned) + STAGING_S
    slower = max(whole) + STAGING_S * max(0, nbytes / STAGING_BYTES - 1)
    return [(0.0, slower), (first, slower)]


@dataclass(frozen=True)
class HostCost:
    """One execution mode: what the host spends to bring each operation of a step to the GPU.

    Attributes:
        name: The key in `HOST_COSTS`.
        forward_s: Seconds for an operation that Python calls, the launch included.
        backward_s: Seconds for one that C++ calls, as autograd does in backward, and autocast.
        low_s: The least that `forward_s` is on other hosts.
        high_s: The most that it is there.
        source: Where the figures come from.
        fuses: Whether generated code does several operations in one kernel, as `accounting.fusion` has it.
    """

    name: str
    forward_s: float
    backward_s: float
    low_s: float
    high_s: float
    source: str
    fuses: bool = False


HOST_COSTS: dict[str, HostCost] = {
    cost.name: cost
    for cost in (
        HostCost(
            "eager",
            25e-6,
            12e-6,
            10e-6,
            59e-6,
            "assumed between the ends: a plain function's call at the low one; at the high one ResNet-50 inference in "
            "PyTorch 1.9.0a0 (container pytorch-21.03) on a V100 of a DGX-1, 10.3 ms for 174 operations and all else "
            "in a step, whatever the batch of 1 to 4; between them SAM 2 on an A6000 with PyTorch 2.6, 53.7 ms for "
            "1,185 launches (github.com/facebookresearch/sam2, issue 768)",
        ),
        HostCost(
            "eager, 2021",
            55e-6,
            25e-6,
            45e-6,
            59e-6,
            "fitted on the same rows of NVIDIA DeepLearningExamples, container pytorch-21.03, with the loss and its "
            "report counted as operations; backward assumed: no Python, no module",
        ),
        HostCost(
            "eager, 2021, DGX A100",
            33e-6,
            15e-6,
            31e-6,
            33e-6,
            "fitted on EfficientNet-B0 in 16 bits with one picture at a time, 105 pictures a second in NVIDIA "
            "DeepLearningExamples; backward as much less as on the other host, assumed",
        ),
        HostCost(
            "compiled",
            8e-6,
            8e-6,
            4e-6,
            15e-6,
            "assumed, of the host: torch.compile's generated code, which does little but launch. What it fuses: "
            "torch/_inductor/codegen/simd.py of PyTorch 2.13",
            fuses=True,
        ),
        HostCost("C++", 8e-6, 8e-6, 4e-6, 15e-6, "assumed: a program that calls a library's kernels one by one"),
    )
}
