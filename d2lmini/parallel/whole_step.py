"""One step of a transformer in a layout, run whole: what `layout` says by formula, from torch's own tools.

    tensor      `cut_layer`, and the logits split by columns     pipeline    torch.distributed.pipelining, 1F1B
    data        `fully_shard` (ZeRO-3), or all-reduces after the last micro-batch (ZeRO-0)

Run it with `simgpu.spawn`; with shapes alone, layers as wide as a large model's cost this computer nothing.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import simgpu
from d2lmini.models.llama import Layer, rotation
from d2lmini.parallel.layout import Layout, Shape
from d2lmini.parallel.tensor_parallel import CopyToRanks, column_parallel, cut_layer

# Kernels that the formula leaves out: FSDP's copies out of the gathered buffer and into the one that is scattered; what
# converts, adds and divides gradients.
COPIES, GRADIENTS = ("split_with_sizes_copy", "chunk_cat"), ("_to_copy", "add_", "div_")


class Part(nn.Module):
    """Some layers of a transformer; the first part has the embedding, the last the logits, split over tensor ranks."""

    def __init__(self, shape, layers, first, last, group):
        super().__init__()
        self.words = nn.Embedding(shape.words, shape.width) if first else nn.Identity()
        self.layers = nn.ModuleList(
            Layer(shape.width, shape.heads, shape.key_heads, shape.hidden) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(shape.width, eps=1e-5) if last else nn.Identity()
        self.logits = nn.Linear(shape.width, shape.words, bias=False) if last else nn.Identity()
        self.group, self.turn = group, [t.bfloat16() for t in rotation(shape.length, shape.width // shape.heads)]
        if dist.get_world_size(group) > 1:
            for layer in self.layers:
                cut_layer(layer, group)
            if last:
                self.logits = column_parallel(self.logits, group)

    def forward(self, x):
        """Return the next part's input, or this rank's logits; x: tokens for the first part."""
        x = self.words(x)
        for layer in self.layers:
            x = layer(x, self.turn)
        return self.logits(CopyToRanks.apply(self.norm(x), self.group))


class SplitLoss(torch.autograd.Function):
    """The mean cross-entropy of logits whose columns are split over a group: no rank has all of them."""

    @staticmethod
    def forward(ctx, logits, targets, group):
        """Return the loss; logits: (batch, length, this rank's columns), in 16 bits."""
        ctx.dtype, (*ctx.shape, n) = logits.dtype, logits.shape
        share, local = logits.flatten(0, 1).to(torch.float32, copy=True), targets.flatten() - dist.get_rank(group) * n
        top = share.amax(-1, keepdim=True)
        dist.all_reduce(top, dist.ReduceOp.MAX, group)
        inside = ((local >= 0) & (local < n))[:, None]
        local = local.clamp(0, n - 1)[:, None]
        wanted = share.sub_(top).gather(1, local) * inside
        total = share.exp_().sum(-1, keepdim=True)
        for sums in (wanted, total):
            dist.all_reduce(sums, group=group)
        ctx.save_for_backward(share.div_(total), local, inside)
        return (total.log() - wanted).mean()

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradient of this rank's logits: its share of the softmax, less one at the target."""
        share, local, inside = ctx.saved_tensors
        share.scatter_add_(1, local, -inside.to(share.dtype)).mul_(gradient / len(share))
        return share.to(ctx.dtype).view(*ctx.shape, -1), None, None


def shard_part(part: Part, mesh: DeviceMesh) -> None:
    """Apply ZeRO-3 to a part: each of its modules is gathered by itself, gradients are reduced in 32 bits."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in (part.words, *part.layers, part.logits, part):
        if any(True for _ in module.parameters()):
            fully_shard(module, mesh=mesh, mp_policy=policy)


def sum_gradients(parameters: list[nn.Parameter], group: dist.ProcessGroup) -> None:
    """All-reduce 32-bit gradients, one after the other."""
    for parameter in parameters:
        gradient = parameter.grad.float()
        dist.all_reduce(gradient, group=group)
        parameter.grad = gradient.to(parameter.dtype)


def run_whole_step(rank: int, shape: Shape, layout: Layout) -> tuple[float, int]:
    """Run one step without its update; return (seconds, bytes at its peak) of this rank.

    Args:
        rank: This rank, of as many as the layout has GPUs.
        shape: The model's `Shape`.
        layout: The `Layout`: level 0 or 3, no recomputation, no sequence parallelism.
    """
    sizes, names = (layout.pipeline, layout.data, layout.tensor), ("pipeline", "data", "tensor")
    mesh = init_device_mesh("sim", sizes, mesh_dim_names=names)
    ranks, place = mesh["tensor"].get_group(), mesh["pipeline"].get_local_rank()
    places = range(place, layout.pipeline * layout.chunks, layout.pipeline)
    last = layout.pipeline * layout.chunks - 1
    with torch.device("sim"):
        parts = [Part(shape, shape.layers // (last + 1), i == 0, i == last, ranks).bfloat16() for i in places]
        tokens = torch.zeros(layout.batch * layout.batches, shape.length, dtype=torch.long)
    for part in parts if layout.level == 3 else ():
        shard_part(part, mesh["data"])

    def loss(logits, targets):
        return SplitLoss.apply(logits, targets, ranks)

    run = _pipeline(parts, places, last, shape, layout, loss, mesh["pipeline"].get_group()) if last else None
    dist.barrier()
    torch.sim.synchronize()
    begin = simgpu.now()
    if run:
        run(tokens)
    else:
        for some in tokens.split(layout.batch):
            loss(parts[0](some), some).backward()
    if layout.level == 0 and layout.data > 1:
        sum_gradients([p for part in parts for p in part.parameters()], mesh["data"].get_group())
    torch.sim.synchronize()
    return simgpu.now() - begin, torch.sim.max_memory_allocated()


def _pipeline(parts, places, last, shape, layout, loss, group):
    """Return a function that runs one step of this rank's stages: torch's 1F1B, plain or interleaved."""
    device, stages = torch.device("sim"), []
    tokens = torch.empty(layout.batch, shape.length, dtype=torch.long, device=device)
    between = torch.empty(*tokens.shape, shape.width, dtype=torch.bfloat16, device=device, requires_grad=True)
    logits = torch.empty(*tokens.shape, shape.words // layout.tensor, dtype=torch.bfloat16, device="meta")
    for place, part in zip(places, parts):
        ends = between if place else tokens, between if place < last else logits.requires_grad_()
        stages.append(pipelining.PipelineStage(part, place, last + 1, device, *ends, group=group))
    if layout.chunks > 1:
        schedule = pipelining.ScheduleInterleaved1F1B(stages, layout.batches, loss)
    else:
        schedule = pipelining.Schedule1F1B(stages[0], layout.batches, loss)

    def run(tokens):
        target = tokens if last in places else None
        schedule.step(*([tokens] if 0 in places else []), target=target, return_outputs=False)

    return run


def missing_seconds(spans: list, layout: Layout, terms: dict[str, float]) -> dict[str, float]:
    """Return the seconds of a whole step on one GPU that the formula leaves out, by cause.

    Args:
        spans: The step's spans on this GPU, from a `simgpu.trace`.
        layout: The step's `Layout`, with replicas.
        terms: The `step_seconds` of the layout.
    """
    kernels = [s for s in spans if s.row == 0]
    sent = [s for s in spans if s.kind == "communication"]
    sums, gathers, scatters = (
        [s for s in sent if s.name.startswith(how)] for how in ("all_reduce", "all_gather", "reduce_scatter")
    )
    late = [s for s in sums if layout.level == 0 and s.row == sums[-1].row]  # of gradients: the last are
    if layout.level:  # a layer's messages are the largest
        first = [max(each, key=lambda s: s.nbytes) for each in (gathers, scatters[::-1])]
        parts = {"copies": _spent(kernels, COPIES), "first layer": _exposed(first, kernels)}
        if layout.tensor > 1:
            parts["late gathers"] = _exposed(gathers + scatters, kernels) - parts["first layer"] - terms["data"]
    else:
        parts = {"late all-reduces": _spent(late) - terms["data"], "gradients": _spent(kernels, GRADIENTS)}
    if layout.tensor > 1:
        parts["logits"] = _spent(sums) - _spent(late) - terms["tensor"]
    return parts


def _spent(spans, begins=""):
    return sum(s.seconds for s in spans if s.name.startswith(begins))


def _exposed(messages, kernels):
    """Return the seconds of messages beside which no kernel runs."""
    beside = (min(m.end, k.end) - max(m.start, k.start) for m in messages for k in kernels)
    return _spent(messages) - sum(max(0, ps) for ps in beside) / 1e12
