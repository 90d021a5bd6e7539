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
from collections import namedtuple
from functools import lru_cache

from simgpu.hardware.shares import shares

TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))  # of cuBLAS's and CUTLASS's usual sizes
SPLITS = (1, 2, 4, 8, 16)
SHORTEST = 128  # of k, for one of several blocks that share a tile: less does not fill its pipeline
STEP = 32  # k is taken in steps of so many numbers; the last one is padded
ALIGNED, UNALIGNED = 8, 0.5  # 16-bit rows of other than whole eights: assumed, half the tensor cores' rate
PAIR = 2  # Blackwell's multiprocessors that read half of the columns each (NVIDIA CUTLASS, tcgen05 MMA: CTA pairs)
PORT = 64  # bytes a clock from the L2 into one multiprocessor (Jia et al., arXiv:1804.06826, for Volta)

Gemm = namedtuple("Gemm", "batch m n k nbytes reordered", defaults=(0,))
Gemm.__doc__ = """`batch` multiplications of m × k by k × n matrices.

nbytes: what they read and write in the GPU's memory; reordered: what kernels before and after them move to bring
operands into the order that the tensor cores read.
"""


@lru_cache(maxsize=20_000)
def gemm_seconds(gemm, gpu, flops_per_s, itemsize):
    """Return the seconds that a `Gemm` occupies `gpu`, a `hardware.GPU`.

    flops_per_s: what full tiles reach. itemsize: bytes of an operand's number.
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


def _blocks_seconds(gemm, tile, splits, gpu, flops_per_s, itemsize, ports):
    """Return the seconds of computing and of reading from the L2, whichever is longer."""
    rows, columns = tile
    blocks = gemm.batch * math.ceil(gemm.m / rows) * math.ceil(gemm.n / columns) * splits
    waves = math.ceil(blocks / gpu.multiprocessors)
    depth = math.ceil(gemm.k / (splits * STEP)) * STEP
    computing = waves * 2 * rows * columns * depth * gpu.multiprocessors / flops_per_s
    read = (rows + columns / (PAIR if gpu.generation == "Blackwell" else 1)) * depth * itemsize
    return max(computing, waves * read / (PORT * gpu.clock_hz), blocks * read / ports)
