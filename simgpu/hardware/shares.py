"""Which share of a GPU's published figures operations reach, for each generation and kind of operation.

Every share names what it was fitted on. Where a generation has no measurements of its own, the nearest stands in for
it (`GENERATIONS`). Chips that differ from the rest of their generation have their own.
"""

from dataclasses import dataclass

from simgpu.hardware.gpus import GPU


@dataclass(frozen=True)
class Shares:
    """What one generation of GPUs reaches.

    Attributes:
        arithmetic: Matrix multiplication on tensor cores, a share of peak FLOP/s.
        ordinary: Matrix multiplication on ordinary cores, a share of peak FLOP/s.
        traffic: Matrix multiplication, a share of the memory's bandwidth.
        l2: The share of its multiprocessors that the L2 cache serves at full speed at once.
        product_s: Seconds of the shortest matrix multiplication.
        split_s: Seconds of adding up one whose k was split.
        conv: Convolution on ordinary cores, counted directly, a share of peak FLOP/s; algorithms that multiply less
            make up for what the cores lose.
        conv_tensor: The same on tensor cores. Fast ones reach less: see `op_costs.CONV_OPERANDS`.
        attention: Fused attention, a share of peak FLOP/s: FlashAttention-2, PyTorch's kernel, 50 to 73 % of an A100
            (Dao, arXiv:2307.08691), the least taken.
        stream: Operations that read in order, a share of the memory's bandwidth.
        gather: Operations whose rows the data choose, a share of the memory's bandwidth.
        fitted: The measurements behind them.
    """

    arithmetic: float
    ordinary: float
    traffic: float
    l2: float
    product_s: float
    split_s: float
    conv: float
    conv_tensor: float
    attention: float
    stream: float
    gather: float
    fitted: str


SHARES: dict[str, Shares] = {
    "Kepler": Shares(
        arithmetic=0.75,
        ordinary=0.75,
        traffic=0.78,
        l2=1,
        product_s=2e-6,
        split_s=2e-6,
        conv=0.54,
        conv_tensor=0.54,
        attention=0.54,
        stream=0.78,
        gather=0.5,
        fitted="Table 7 of Shi et al. 2016 (float32, GTX 980 and one chip of a K80, both at base clock)",
    ),
    "Volta": Shares(
        arithmetic=0.82,
        ordinary=0.82,
        traffic=0.75,
        l2=0.5,
        product_s=3e-6,
        split_s=2e-6,
        conv=1,
        conv_tensor=0.76,
        attention=0.5,
        stream=0.9,
        gather=0.5,
        fitted="training of ResNet-50, SSD300 and BERT on V100, one half of the rows of NVIDIA's "
        "DeepLearningExamples and Lambda's deeplearning-benchmark",
    ),
    # 70 W do not feed the chip at its data sheet's clock: a T4 that was set to it fell to about 900 of 1590 MHz
    # (github.com/mlcommons/inference_results_v0.5/issues/20).
    "T4": Shares(
        arithmetic=0.37,
        ordinary=0.53,
        traffic=0.75,
        l2=0.5,
        product_s=3e-6,
        split_s=2e-6,
        conv=0.65,
        conv_tensor=0.34,
        attention=0.22,
        stream=0.9,
        gather=0.5,
        fitted="long products: 24 TFLOP/s in float16, the mean of 100 (forums.developer.nvidia.com/t/264462; the "
        "best of some sizes is 42), 4.2 and 4.4 in float32 (github.com/zzc0721/torch-performance-test-data); "
        "other arithmetic as much slower than Volta's shares, chosen with inference rows of a T4 in sight",
    ),
    "Ampere": Shares(
        arithmetic=0.908,
        ordinary=0.908,
        traffic=0.704,
        l2=0.358,
        product_s=3.6e-6,
        split_s=1.8e-6,
        conv=1,
        conv_tensor=0.9,
        attention=0.5,
        stream=0.92,
        gather=0.5,
        fitted="products: one half of 800 bfloat16 products on A100; the others: training on RTX 3090, one half "
        "of Lambda's rows",
    ),
    # Half of these cards' ordinary cores serve integers too: the peak counts them all, products reach less of it.
    "GA10x": Shares(
        arithmetic=0.908,
        ordinary=0.68,
        traffic=0.704,
        l2=0.358,
        product_s=3.6e-6,
        split_s=1.8e-6,
        conv=1,
        conv_tensor=0.9,
        attention=0.5,
        stream=0.92,
        gather=0.5,
        fitted="as Ampere, but ordinary: long products in float32, 0.62 to 0.71 of the peak on RTX 3080 Ti, RTX "
        "3090, RTX A6000, RTX 4070 SUPER and RTX 4090, but 0.51 on L40S (the table named for the T4)",
    ),
    "Hopper": Shares(
        arithmetic=0.855,
        ordinary=0.78,
        traffic=0.85,
        l2=0.809,
        product_s=2.5e-6,
        split_s=2.8e-6,
        conv=1,
        conv_tensor=0.855,
        attention=0.31,
        stream=0.91,
        gather=0.5,
        fitted="products: one half of 300 bfloat16 products on H100; ordinary: 51 and 52 TFLOP/s in float32 on "
        "H200 and H100 (the table named for the T4); conv_tensor: taken from the products, for what it "
        "feeds limits a convolution first; attention: FlashAttention-2, forward and backward, on H100 "
        "(Shah et al., arXiv:2407.08608); the others: BERT on H100, Lambda's rows",
    ),
}
GENERATIONS = {
    "Fermi": "Kepler",
    "Kepler": "Kepler",
    "Maxwell": "Kepler",
    "Pascal": "Kepler",
    "Volta": "Volta",
    "Turing": "Volta",
    "Ampere": "Ampere",
    "Ada": "GA10x",
    "Hopper": "Hopper",
    "Blackwell": "Hopper",
    "RTX Blackwell": "GA10x",
    "CDNA 3": "Hopper",  # AMD's: no measurement was at hand
    "CDNA 4": "Hopper",
}


def shares(gpu: GPU) -> Shares:
    """Return the `Shares` of a GPU: the card's own, or those of its generation."""
    chip = "GA10x" if gpu.capability == (8, 6) else GENERATIONS[gpu.generation]
    return SHARES.get(gpu.name) or SHARES[chip]
