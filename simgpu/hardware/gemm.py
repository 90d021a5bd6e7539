"""How long a matrix multiplication (GEMM) takes: tiles of the result, waves of tiles, and four limits.

    result m × n          one tile = one block of threads       split-K: `splits` blocks share
    ┌──┬──┬──┐                reads (rows + columns) × k          a tile, each takes a part of k,
    ├──┼──┼──┤                computes 2 × rows × columns × k     and their sums are added
    └──┴──┴──┘

Blocks are dealt out to the multiprocessors; the one that has most decides, so that 109 tiles on 108 multiprocessors
take as long as 216. A block is limited by the arithmetic units and by how fast its multiprocessor reads from the L2
cache; all together by what the L2 delivers and by the GPU's memory. The library knows several tiles and splits; the
fastest is taken, as its heuristics try to.
"""

import math
from functools import lru_cache
from typing import NamedTuple

from simgpu.hardware.gpus import GPU
from simgpu.hardware.shares import shares

TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))  # of cuBLAS's and CUTLASS's usual sizes
SPLITS = (1, 2, 4, 8, 16)
SHORTEST = 128  # of k, for one of several blocks that share a tile: less does not fill its pipeline
STEP = 32  # k is taken in steps of so many numbers; the last one is padded
ALIGNED, UNALIGNED = 8, 0.5  # 16-bit rows of other than whole eights: assumed, half the tensor cores' rate
PAIR = 2  # Blackwell's multiprocessors that read half of the columns each (NVIDIA CUTLASS, tcgen05 MMA: CTA pairs)
PORT = 64  # bytes a clock from the L2 into one multiprocessor (Jia et al., arXiv:1804.06826, for Volta)


class Gemm(NamedTuple):
    """Matrix multiplications of one size, done as one operation.

    Attributes:
        batch: How many.
        m: Rows of the left matrices.
        n: Columns of the right ones.
        k: Columns of the left and rows of the right ones.
        nbytes: Bytes that they read and write in the GPU's memory.
        reordered: Bytes that kernels around them move to bring operands into the order that tensor cores read.
    """

    batch: int
    m: int
    n: int
    k: int
    nbytes: int
    reordered: int = 0


@lru_cache(maxsize=20_000)
def gemm_seconds(gemm: Gemm, gpu: GPU, flops_per_s: float, itemsize: int) -> float:
    """Return the seconds for which a `Gemm` occupies a GPU.

    Args:
        gemm: Its sizes.
        gpu: The GPU.
        flops_per_s: The rate that full tiles reach.
        itemsize: Bytes of an operand's number.
    """
    share = shares(gpu)
    if itemsize == 2 and (gemm.k % ALIGNED or gemm.n % ALIGNED):
        flops_per_s *= UNALIGNED
    ports = gpu.multiprocessors * PORT * gpu.clock_hz * share.l2
    traffic = gemm.nbytes / (gpu.memory_bytes_per_s * share.traffic)
    found = []
    for tile in TILES:
        for splits in SPLITS:
            if splits > 1 and gemm.k < splits * SHORTEST:
                break
            seconds = max(traffic, _blocks_seconds(gemm, tile, splits, gpu, flops_per_s, itemsize, ports))
            if splits > 1:  # float32 sums, written and read
                seconds += share.split_s + 8 * splits * gemm.batch * gemm.m * gemm.n / ports
            found.append(seconds)
    return share.product_s + min(found) + gemm.reordered / (gpu.memory_bytes_per_s * share.stream)


def _blocks_seconds(
    gemm: Gemm, tile: tuple[int, int], splits: int, gpu: GPU, flops_per_s: float, itemsize: int, ports: float
) -> float:
    """Return the seconds of computing and of reading from the L2, whichever is longer."""
    rows, columns = tile
    blocks = gemm.batch * math.ceil(gemm.m / rows) * math.ceil(gemm.n / columns) * splits
    waves = math.ceil(blocks / gpu.multiprocessors)
    depth = math.ceil(gemm.k / (splits * STEP)) * STEP
    computing = waves * 2 * rows * columns * depth * gpu.multiprocessors / flops_per_s
    read = (rows + columns / (PAIR if gpu.generation == "Blackwell" else 1)) * depth * itemsize
    return max(computing, waves * read / (PORT * gpu.clock_hz), blocks * read / ports)
