"""Programs of `torch.distributed` as their documentation writes them, each to be equal to one process.

A case has a name, `run(rank)`, which returns what is compared; `alone()`, the same in one process; and `sent(n)`, the
bytes that n ranks send in all, by collective, as a formula; None where a program sends what no formula tells.
"""

from collections import Counter, namedtuple
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import simgpu

Case = namedtuple("Case", "name run alone sent tolerance")
STEPS, SAMPLES, WIDTH = 2, 16, 16
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
CASES = []


def case(alone, sent=None, tolerance=1e-6, name=None, **options):
    """Add the decorated function as a case; `options` are given to it."""

    def add(function):
        CASES.append(Case(name or function.__name__, lambda rank: function(rank, **options), alone, sent, tolerance))
        return function

    return add


# -- a small network, and training it in one process -----------------------------------------------------------------


def network(extra=()):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, WIDTH), *extra)


def samples():
    numbers = torch.Generator().manual_seed(1)
    return torch.randn(SAMPLES, WIDTH, generator=numbers), torch.randn(SAMPLES, WIDTH, generator=numbers)


def share(part=None, parts=None):
    """Return a rank's part of the samples, on its device."""
    part, parts = (dist.get_rank(), dist.get_world_size()) if part is None else (part, parts)
    return [t.chunk(parts)[part].to("sim") for t in samples()]


def optimizer(model, kind=torch.optim.SGD, **options):
    return kind(model.parameters(), lr=0.1, momentum=0.9, **options)


def steps(model, x, y, optimize=None, loss=nn.functional.mse_loss):
    optimize = optimize or optimizer(model)
    for _ in range(STEPS):
        optimize.zero_grad()
        loss(model(x), y).backward()
        optimize.step()


def alone(make=network, optimize=optimizer, **how):
    """Return a function that trains a network in one process and returns its parameters and buffers."""

    def run():
        model = make()
        steps(model, *samples(), optimize(model), **how)
        return state(model)

    return run


trained = alone()


def state(model):
    """Return the whole parameters of a model, whether they are spread over ranks or not, and its buffers."""
    return [p.full_tensor() if isinstance(p, DTensor) else p for p in [*model.parameters(), *model.buffers()]]


def training(name, wrap, sent=None, tolerance=1e-6, make=network, optimize=optimizer, wanted=trained):
    """Add a case: each rank wraps the network and trains it on its share of the samples."""

    def run(rank):
        model = wrap(make().to("sim"))
        steps(model, *share(), optimize(model))
        return state(model)

    CASES.append(Case(name, run, wanted, sent, tolerance))


def mesh(*shape):
    return init_device_mesh("sim", shape or (dist.get_world_size(),), mesh_dim_names=("a", "b")[: len(shape) or 1])


P = sum(p.numel() for p in network().parameters()) * 4  # bytes
COUNT = len(list(network().parameters()))


def gradients(n, extra=0):
    """All-reducing the gradients in every step."""
    return {"all_reduce": STEPS * 2 * (n - 1) * (P + extra)}


def shards(n, gathers=2, width=1):
    """Gathering the parameters in forward and in backward, and at the end; the gradients reduced and scattered."""
    return {"all_gather": (STEPS * gathers // width + 1) * (n - 1) * P, "reduce_scatter": STEPS * (n - 1) * P}


def halves(n):
    return {"all_reduce": gradients(n)["all_reduce"] // 2}


# -- data parallelism ------------------------------------------------------------------------------------------------

DDP = DistributedDataParallel
UNUSED = {"find_unused_parameters": True}


class Forked(nn.Module):
    """Uses one of its layers in one step, the other in the next."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.ways, self.calls = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]), 0

    def forward(self, x):
        self.calls += 1
        return self.ways[self.calls % 2](x)


def hooked(model, hook):
    model = DDP(model)
    model.register_comm_hook(None, hook)
    return model


def compressed(model):
    model = DDP(model)
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return model


def normalizing():
    return network((nn.BatchNorm1d(WIDTH),))


training("DDP", lambda model: DDP(model, device_ids=[dist.get_rank()]), gradients)
training("DDP, bucket views", partial(DDP, gradient_as_bucket_view=True, bucket_cap_mb=0.001), gradients)
training("DDP, find_unused_parameters", partial(DDP, **UNUSED), lambda n: gradients(n, 4 * COUNT))
training("DDP, static_graph", partial(DDP, static_graph=True))
training("DDP, parameters that go unused", partial(DDP, **UNUSED), make=Forked, wanted=alone(Forked))
training("DDP, hook to float16", partial(hooked, hook=default_hooks.fp16_compress_hook), halves, 1e-3)
training("DDP, hook to bfloat16", partial(hooked, hook=default_hooks.bf16_compress_hook), halves, 1e-2)
training("DDP, built-in hook to float16", compressed, halves, 1e-3)
training(
    "SyncBatchNorm",
    DDP,
    make=lambda: nn.SyncBatchNorm.convert_sync_batchnorm(normalizing()),
    tolerance=1e-5,
    wanted=alone(normalizing),
)
training(
    "ZeroRedundancyOptimizer",
    DDP,
    optimize=partial(optimizer, kind=ZeroRedundancyOptimizer, optimizer_class=torch.optim.SGD),
)


@case(trained, gradients, name="DDP, no_sync")
def ddp_no_sync(rank):
    model = DDP(network().to("sim"))
    optimize, (x, y) = optimizer(model), share()
    for _ in range(STEPS):
        optimize.zero_grad()
        with model.no_sync():
            (nn.functional.mse_loss(model(x[::2]), y[::2]) * len(x[::2]) / len(x)).backward()
        if len(x) > 1:
            (nn.functional.mse_loss(model(x[1::2]), y[1::2]) * len(x[1::2]) / len(x)).backward()
        optimize.step()
    return state(model)


def join_alone():
    """As two of the ranks see it: batches of one sample each, of which rank 1 has one more."""
    model = network()
    optimize, (x, y) = optimizer(model), samples()
    for step in range(2):
        optimize.zero_grad()
        active = [0, 1] if step == 0 else [1]
        sum(nn.functional.mse_loss(model(x[[r]]), y[[r]]) for r in active).div(len(active)).backward()
        optimize.step()
    return list(model.parameters())


@case(join_alone, name="DDP, join with uneven inputs")
def ddp_join(rank):
    model = DDP(network().to("sim"))
    optimize, (x, y) = optimizer(model), samples()
    with Join([model], divide_by_initial_world_size=False):
        for _ in range(2 if rank == 1 else rank == 0):
            optimize.zero_grad()
            nn.functional.mse_loss(model(x[[rank]].to("sim")), y[[rank]].to("sim")).backward()
            optimize.step()
    return state(model)


@case(trained, tolerance=1e-2, name="DDP, autocast to bfloat16")
def ddp_autocast(rank):
    model = DDP(network().to("sim"))
    with torch.autocast("sim", torch.bfloat16):
        steps(model, *share())
    return state(model)


@case(lambda: [torch.arange(10)], name="DistributedSampler")
def sampler(rank):
    data = TensorDataset(torch.arange(10))
    mine = torch.cat([batch for (batch,) in DataLoader(data, 2, sampler=DistributedSampler(data, shuffle=True))])
    everything = [torch.empty_like(mine, device="sim") for _ in range(dist.get_world_size())]
    dist.all_gather(everything, mine.to("sim"))
    return [torch.cat(everything).unique()]


# -- sharded data parallelism ----------------------------------------------------------------------------------------


def sharded(model, **options):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


def checkpointed(model):
    model = nn.Sequential(*map(checkpoint_wrapper, model))
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


class Clipping:
    """An optimiser that clips first."""

    def __init__(self, model):
        self.model, self.optimizer = model, optimizer(model)
        self.zero_grad = self.optimizer.zero_grad

    def step(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)
        self.optimizer.step()


training("fully_shard", sharded, shards)
training("fully_shard, parameters on the host", partial(sharded, offload_policy=CPUOffloadPolicy()))
training(
    "fully_shard, reshard_after_forward=False",
    partial(sharded, reshard_after_forward=False),
    lambda n: shards(n, gathers=1),
)
if TORCH >= (2, 12):  # before, mse_loss of bfloat16 and float32 had no backward, on the CPU either
    training(
        "fully_shard, bfloat16",
        partial(sharded, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
        lambda n: shards(n, width=2),
        1e-2,
    )
training("fully_shard, activation checkpointing", checkpointed, shards)
training("fully_shard of replicas (HSDP)", lambda model: sharded(model, mesh=mesh(2, dist.get_world_size() // 2)))
training("fully_shard, clip_grad_norm_", sharded, optimize=Clipping, wanted=alone(optimize=Clipping))


@case(trained, name="FSDP1")
def fsdp1(rank):
    model = FullyShardedDataParallel(network().to("sim"), device_id=torch.device("sim", rank), use_orig_params=True)
    steps(model, *share())
    with FullyShardedDataParallel.summon_full_params(model):
        return [p.detach().clone() for p in model.parameters()]


# -- tensor parallelism ----------------------------------------------------------------------------------------------

PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


@case(lambda: [samples()[0] @ samples()[1].t(), samples()[0].sum(0)], name="DTensor")
def dtensor(rank):
    x, y = (t.to("sim") for t in samples())
    rows, columns = distribute_tensor(x, mesh(), [Shard(0)]), distribute_tensor(y.t(), mesh(), [Shard(1)])
    product = rows @ columns.redistribute(placements=[Replicate()])
    return [product.full_tensor(), rows.sum(0).full_tensor()]


def activations(n):
    """All-reducing a layer's output in forward, and nothing in backward, where the samples need no gradient."""
    return {"all_reduce": STEPS * 2 * (n - 1) * SAMPLES * 32 * 4}


@case(trained, activations, name="parallelize_module")
def tensor_parallel(rank):
    model = parallelize_module(network().to("sim"), mesh(), PLAN)
    steps(model, *(t.to("sim") for t in samples()), optimizer(model, foreach=False))
    return state(model)


def normal():
    return nn.Sequential(nn.LayerNorm(WIDTH), *network())


@case(alone(normal), name="SequenceParallel")
def sequence_parallel(rank):
    model = normal().to("sim")
    plan = {
        "0": SequenceParallel(sequence_dim=0, use_local_output=False),
        "3": RowwiseParallel(),
        "1": ColwiseParallel(input_layouts=Shard(0)),
    }
    model = parallelize_module(model, mesh(), plan)
    steps(model, share()[0], samples()[1].to("sim"), optimizer(model, foreach=False))
    return state(model)


@case(trained, name="fully_shard × parallelize_module")
def fsdp2_tensor_parallel(rank):
    grid = mesh(dist.get_world_size() // 2, 2)
    model = fully_shard(parallelize_module(network().to("sim"), grid["b"], PLAN), mesh=grid["a"])
    steps(model, *share(grid["a"].get_local_rank(), grid["a"].size()), optimizer(model, foreach=False))
    return state(model)


@case(
    alone(lambda: network()[:1], loss=lambda out, _: nn.functional.cross_entropy(out, torch.arange(SAMPLES) % 32)),
    name="loss_parallel",
)
def parallel_loss(rank):
    columns = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    model = parallelize_module(network()[:1].to("sim"), mesh(), {"0": columns})
    wanted = torch.arange(SAMPLES, device="sim") % 32
    with loss_parallel():
        steps(model, samples()[0].to("sim"), wanted, optimizer(model, foreach=False), nn.functional.cross_entropy)
    return state(model)


# -- attention, split by heads and by the sequence -------------------------------------------------------------------


def queries():
    """Return queries, keys and values [2, 8 heads, 32 long, 4 wide]: 8 KiB each."""
    numbers = torch.Generator().manual_seed(1)
    return [torch.randn(2, 8, 32, 4, generator=numbers).requires_grad_() for _ in range(3)]


def attended(*inputs):
    """Return causal attention's result, and the gradients of its inputs for a share of the sum of squares."""
    out = nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
    return [out.detach(), *torch.autograd.grad(out.square().sum() / 2**11, inputs)]


def heads(n):
    """Three inputs are shared out and four results put together; attention itself sends nothing."""
    return {"scatter": 3 * 2**13 * (n - 1) // n, "all_gather": 4 * (n - 1) * 2**13}


@case(lambda: attended(*queries()), heads, name="attention of DTensors")
def attention_by_heads(rank):
    parts = [distribute_tensor(x.detach().to("sim"), mesh(), [Shard(1)]).requires_grad_() for x in queries()]
    return [t.full_tensor() for t in attended(*parts)]


def ring_of_keys(n):
    """Keys and values in forward and in backward, four results; the gradients of both go round until they are home."""
    return {"all_gather": (2 + 2 + 4) * (n - 1) * 2**13, "all_to_all": 2 * n * 2**13}


@case(lambda: attended(*queries()), ring_of_keys, name="context_parallel")
def attention_by_sequence(rank):
    parts = [x.detach().to("sim") for x in queries()]
    with context_parallel(mesh(), buffers=parts, buffer_seq_dims=[2] * 3):
        found = attended(*(part.clone().requires_grad_() for part in parts))
        return context_parallel_unshard(mesh(), found, [2] * 4)


# -- pipeline parallelism --------------------------------------------------------------------------------------------


def deep(layers=8):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(layers)])


def messages(n, stages_each=1):
    """Outputs forward and their gradients backward, between neighbouring stages, which agree on shapes first.

    They ask and answer in 4 bytes each; from torch 2.15 on each pair of ranks asks once, and an all-reduce answers.
    """
    stages = n * stages_each - 1
    ranks = n if stages_each > 1 and n > 2 else n - 1
    return {"send": STEPS * 2 * SAMPLES * WIDTH * 4 * stages + (4 * ranks if TORCH >= (2, 15) else 8 * stages)}


@case(alone(deep), messages, name="pipelining, GPipe", schedule=ScheduleGPipe)
@case(alone(deep), messages, name="pipelining, 1F1B", schedule=Schedule1F1B)
@case(
    alone(lambda: deep(16)),
    lambda n: messages(n, 2),
    name="pipelining, interleaved 1F1B",
    schedule=ScheduleInterleaved1F1B,
    each=2,
)
def pipeline(rank, schedule, each=1):
    n, model = dist.get_world_size(), deep(8 * each)
    long = len(model) // (n * each)
    numbers = range(rank, n * each, n)
    parts = [model[i * long : (i + 1) * long].to("sim") for i in numbers]
    batch = torch.zeros(SAMPLES // 8, WIDTH, device="sim", requires_grad=True)  # what each stage gets, and gives
    stages = [
        PipelineStage(part, i, n * each, batch.device, batch if i else batch.detach(), batch)
        for part, i in zip(parts, numbers)
    ]
    runner = schedule(stages if each > 1 else stages[0], 8, loss_fn=nn.functional.mse_loss)
    optimize, (x, y) = optimizer(nn.ModuleList(parts)), (t.to("sim") for t in samples())
    for _ in range(STEPS):
        optimize.zero_grad()
        runner.step(*([x] if rank == 0 else []), **({"target": y, "losses": []} if rank == n - 1 else {}))
        optimize.step()
    everything = [None] * n
    dist.all_gather_object(everything, [[p.detach().cpu() for p in part.parameters()] for part in parts])
    return [p for stage in range(n * each) for p in everything[stage % n][stage // n]]


def ran(case, ranks):
    """Return the ranks' results on the host, the bytes sent by collective, the simulated seconds, and each message.

    Operations are left out, for torch's DDP zeroes the gradients of unused parameters in an order of chance.
    """
    simgpu.enable(ranks, gpu="V100-SXM2-16GB", link="NVLink2")
    with simgpu.trace() as trace:
        results = simgpu.spawn(lambda rank: [t.detach().cpu() for t in case.run(rank)])
    messages = [span for span in trace.spans if span.kind == "communication"]
    return results, sent_in(trace), trace.seconds, messages


def sent_in(trace):
    """Return the bytes that were sent, by collective."""
    sent = Counter()
    for span in trace.spans:
        if span.kind == "communication":
            sent[span.name.split()[0]] += span.nbytes
    return sent


def took(call, *args, **options):
    """Return the simulated seconds of a call on a rank, until its GPU has done all that was asked of it."""
    torch.sim.synchronize()
    begin = simgpu.now()
    call(*args, **options)
    torch.sim.synchronize()
    return simgpu.now() - begin
