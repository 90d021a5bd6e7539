"""What things cost on a named GPU or link: the roofline for operations, α + bytes ÷ β for copies.

An operation takes a fixed part and then the longer of two times: its arithmetic at a share of the GPU's peak, or its
traffic at a share of the memory's bandwidth. There is ONE share per kind of operation, the same on every card.
"""

# Shares, rounded from what `benchmarks/predict.py --fit` finds: the smallest median error against Table 7 of Shi et al.
# 2016 (float32, GTX 980 and one chip of a K80, both at base clock). They hold for large operations in float32.
ARITHMETIC = {
    # A product reads each operand once per tile and keeps partial sums in registers: what is lost goes into
    # instructions that fetch operands, into filling and emptying the pipeline, into multiprocessors without a tile.
    "gemm": 0.75,
    # A convolution is a product with repeated, strided reads and with edges, in many shapes that no kernel was tuned
    # for; algorithms that multiply less (Winograd, FFT) win some back: the share is of the direct algorithm's count.
    "conv": 0.45,
}
MEMORY = {
    # Each byte once, in order: what is lost are refreshes, turns between reading and writing, and the kernel's ends.
    "pointwise": 0.75,
    # Many values into few: the same traffic, with sums that wait for one another; the fit finds no difference.
    "reduction": 0.75,
    # Rows at addresses that the data choose: part of each fetched sector is thrown away. Assumed, not fitted: in the
    # table only the LSTM's embedding uses it, for about a tenth of its time.
    "gather": 0.5,
}

# Products and convolutions compute their result in square tiles; a tile that the result fills only partly takes as long
# as a full one. 64 is the smaller of the usual sizes; small batches and few channels pay for it.
TILE = 64

# The host's part of a launch: back-to-back launches of a 2.9 µs kernel took 3.8 µs each on a V100
# (Gray, "Getting Started with CUDA Graphs", NVIDIA technical blog, 2019).
LAUNCH_S = 3.8e-6
KERNEL_S = 2e-6  # assumed: the shortest kernel; starting blocks and draining the pipeline, with no work to do
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


def operation_seconds(flops, nbytes, gpu, kind, dtype="float32"):
    """Return the seconds that one operation occupies `gpu`, a `hardware.GPU`.

    flops: multiplications and additions, counted apart. nbytes: read and written in the GPU's memory.
    kind: a key of `ARITHMETIC` or `MEMORY`. dtype: the operands', named as torch does without "torch.".
    Raises ValueError for an unknown kind or a negative count.
    """
    if kind not in ARITHMETIC and kind not in MEMORY:
        raise ValueError(f"unknown kind of operation {kind!r}: choose one of {', '.join([*ARITHMETIC, *MEMORY])}")
    if flops < 0 or nbytes < 0:
        raise ValueError(f"an operation's flops and bytes must not be negative, got {flops} and {nbytes}")
    arithmetic = flops / (peak_flops_per_s(gpu, kind, dtype) * ARITHMETIC.get(kind, 1))
    traffic = nbytes / (gpu.memory_bytes_per_s * MEMORY.get(kind, MEMORY["pointwise"]))
    return KERNEL_S + max(arithmetic, traffic)


def padded(*lengths):
    """Return by how much the work grows when each of a result's lengths is rounded up to whole tiles; 1 is none."""
    factor = 1.0
    for length in lengths:
        factor *= -(-length // TILE) * TILE / length if length else 1.0
    return factor


def peak_flops_per_s(gpu, kind, dtype="float32"):
    """Return the peak rate that `gpu` offers to an operation of this kind and type.

    Tensor cores serve products and convolutions of 16-bit types, and convolutions in float32 where they know TF32: the
    defaults of PyTorch. Everything else runs on the ordinary cores; float64 at the card's ratio.
    """
    if dtype in ("float64", "complex128"):
        return gpu.peak_fp32_flops_per_s * gpu.fp64_ratio
    if kind in ARITHMETIC:
        if dtype == "float16" or (dtype == "bfloat16" and gpu.bf16):
            return gpu.peak_tensor_16_flops_per_s or gpu.peak_fp32_flops_per_s
        if dtype == "float32" and kind == "conv":
            return gpu.peak_tensor_tf32_flops_per_s or gpu.peak_fp32_flops_per_s
    return gpu.peak_fp32_flops_per_s


def payload_bytes_per_s(link):
    """Return the rate at which a link carries a program's bytes, one direction: its own less headers."""
    share = LINK_SHARE if link.name.lstrip("0123456789×").startswith(("PCIe", "NVLink")) else NETWORK_SHARE
    return link.bytes_per_s_per_direction * share


def copy_seconds(nbytes, link, pinned=True):
    """Return the seconds that a copy of `nbytes` occupies `link`, a `hardware.Link`: α + bytes ÷ β.

    A copy from or to pageable host memory (`pinned=False`) moves at half the rate. Raises ValueError when negative.
    """
    if nbytes < 0:
        raise ValueError(f"a copy's bytes must not be negative, got {nbytes}")
    rate = payload_bytes_per_s(link) * (1 if pinned else PAGEABLE_SHARE)
    return COPY_S + (link.latency_s or 0) + nbytes / rate


def hop_seconds(nbytes, hops, pinned=True, in_chunks=True):
    """Return (delay, seconds) of each hop of a copy: when it starts, after the hop before it, and how long it takes.

    hops: of `Machine.route`. One hop starts at once; the second, from the host on, starts when the first chunk has
    arrived there or, without `in_chunks`, when all has.
    """
    whole = [copy_seconds(nbytes, hop.link, pinned) for hop in hops]
    if len(hops) == 1 or not in_chunks:
        return list(zip([0.0, *whole], whole, strict=False))
    first = copy_seconds(min(nbytes, STAGING_BYTES), hops[0].link, pinned) + STAGING_S
    slower = max(whole) + STAGING_S * max(0, nbytes / STAGING_BYTES - 1)
    return [(0.0, slower), (first, slower)]
