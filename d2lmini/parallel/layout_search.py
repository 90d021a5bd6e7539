"""The search for the fastest layout that fits, on nodes of eight H100 whose network was measured.

measured_seconds    of a collective there           layouts    all that a search tries
speed               tokens a second of each GPU     search     those that fit, the fastest first
"""

from functools import cache
from itertools import product

from d2lmini.parallel.layout import Layout, Shape, memory_bytes
from d2lmini.parallel.layout_time import step_seconds
from simgpu.hardware import GPUS, MACHINES, collective_costs

H100, NODE = GPUS["H100-SXM5-80GB"], MACHINES["DGX-H100"]
MAY_USE = 0.9 * H100.memory_bytes  # what the allocator and the libraries need beside a layout's tensors: assumed
PACE = 1.21  # computing against the formula: fitted to one run of the cluster below
# Bus bandwidth in GB/s over so many GPUs, 256 MB, nodes of eight H100 joined by Amazon's EFA. Source: Tazi et al., The
# Ultra-Scale Playbook, 2025, figure on the bandwidth of collectives (assets/data/benchmarks/pp_comm_bandwidth.html).
RATES = {
    "all_reduce": {16: 361.75, 32: 160.14, 64: 99.56, 128: 84.74, 256: 64.93, 512: 32.94},
    "all_gather": {16: 184.61, 32: 118.97, 64: 69.00, 128: 54.97, 256: 27.97, 512: 11.04},
    "reduce_scatter": {16: 181.55, 32: 115.76, 64: 68.55, 128: 54.52, 256: 27.94, 512: 11.07},
}

MODELS = {  # width, layers, heads, key heads, hidden, vocabulary, length
    "1B": Shape(2048, 16, 32, 32, 8192, 131072, 4096, tied=True),  # this one and the next are the Playbook's
    "3B": Shape(3072, 28, 32, 32, 8192, 131072, 4096, tied=True),
    "8B": Shape(4096, 32, 32, 8, 14336, 128256, 4096),  # Llama 3's, as the next
    "70B": Shape(8192, 80, 64, 8, 28672, 128256, 4096),
    "8x7B": Shape(4096, 32, 32, 8, 14336, 32000, 4096, experts=8, chosen=2),  # Mixtral's
}


@cache
def measured_seconds(operation, gpus, nbytes):
    """Return the seconds of a collective: NCCL's cost inside a node, the measured rates beyond.

    A message between nodes gets a GPU's share of what two nodes reach in an all-gather.

    Args:
        operation: One of `RATES`, "alltoall" (inside a node only) or "send".
        gpus: How many.
        nbytes: Of a rank's whole buffer, or of the message.

    Raises:
        ValueError: Nobody measured that.
    """
    if gpus <= NODE.count:
        if operation == "send":  # two GPUs exchange halves of their buffers
            operation, gpus, nbytes = "alltoall", 2, 2 * nbytes
        return collective_costs.seconds(operation, NODE, gpus, round(nbytes))
    if operation == "send":
        return NODE.count * nbytes / (1e9 * RATES["all_gather"][2 * NODE.count])
    at = [n for n in RATES.get(operation, ()) if n >= gpus]
    if not at:
        raise ValueError(f"no rate of {operation} was measured over {gpus} GPUs: at most {NODE.count} of them")
    rounds = 2 if operation == "all_reduce" else 1
    return rounds * (gpus - 1) / gpus * nbytes / (1e9 * RATES[operation][min(at)])


def speed(shape, layout, gpu=H100, collective=measured_seconds, pace=PACE):
    """Return the tokens a second of each GPU."""
    tokens = layout.data * layout.batches * layout.batch * shape.length
    return tokens / sum(step_seconds(shape, layout, gpu, collective, pace).values()) / layout.gpus


def layouts(shape, gpus, sequences):
    """Yield the layouts of a batch of so many sequences: 32-bit gradients, tensor and expert ranks inside a node.

    ZeRO-3 shards over all replicas, or over those of a node (hybrid sharding).
    """
    powers = (1, 2, 4, 8)
    experts = [n for n in powers if n <= shape.experts]
    for tensor, pipeline, context, expert in product(powers, powers, powers, experts):
        data = gpus // tensor // pipeline // context
        if tensor * expert > NODE.count or data * tensor * pipeline * context != gpus:
            continue
        levels = [(level, 0) for level in (range(4) if pipeline == 1 else (0, 1))]  # 2, 3 send in every micro-batch
        node = NODE.count // tensor
        if pipeline == 1 and expert == 1 and data * context > node > 1:
            levels.append((3, node))
        options = product(
            levels,
            (1, 2, 4),
            (0.0, 0.5, 1.0),
            (False, True) if tensor > 1 else (False,),
            (1, 2, 4) if pipeline > 1 else (1,),
        )
        for (level, shards), batch, recomputed, sequence, chunks in options:
            batches = sequences // (data * batch)
            if batches * data * batch == sequences:
                sizes = data, tensor, pipeline, level, batch, batches, recomputed, 4
                more = {"chunks": chunks, "context": context, "expert": expert, "shards": shards}
                yield Layout(*sizes, sequence=sequence, **more)


def search(shape, gpus, sequences, collective=measured_seconds, may_use=MAY_USE):
    """Return (tokens a second of each GPU, layout) of the layouts that fit, the fastest first.

    Args:
        shape: The model's `Shape`.
        gpus: How many H100.
        sequences: In a batch.
        collective: As in `step_seconds`.
        may_use: Bytes of a GPU's memory.
    """
    found = []
    for layout in layouts(shape, gpus, sequences):
        try:
            if sum(memory_bytes(shape, layout).values()) <= may_use:
                found.append((speed(shape, layout, collective=collective), layout))
        except ValueError:  # ranks or stages that do not divide the model
            continue
    return sorted(found, key=lambda pair: -pair[0])
