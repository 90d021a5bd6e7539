"""One small transformer, trained by one device and, cut in every way, by simulated ranks."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from d2lmini.models import Llama
from d2lmini.models.llama import Stage, rotation
from d2lmini.parallel import cut_layer, cut_tokens, run_stage, shard

STEPS, BATCH, LENGTH, WORDS, WIDTH = 2, 8, 6, 24, 16
SIZES = {"width": WIDTH, "layers": 4, "heads": 4, "key_heads": 4, "hidden": 32, "words": WORDS}


def model():
    torch.manual_seed(0)
    return Llama(**SIZES)


def tokens():
    return torch.randint(WORDS, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(1))


def loss_of(scores, text):
    return cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.9)


def steps(net, text, optimize, before_step=lambda: None, after_step=lambda: None):
    losses = []
    for _ in range(STEPS):
        loss = loss_of(net(text[:, :-1]), text)
        loss.backward()
        before_step()
        optimize.step()
        optimize.zero_grad()
        after_step()
        losses.append(loss.item())
    return losses


def alone():
    """Return the losses and the parameters of one device."""
    net = model()
    losses = steps(net, tokens(), optimizer(net.parameters()))
    return losses, {name: p.detach() for name, p in net.named_parameters()}


def cut(name, whole, rank, size):
    """Return a rank's part of a parameter under tensor parallelism."""
    if name.split(".")[-2] in ("q", "k", "v", "gate", "up"):
        return whole.chunk(size)[rank]
    return whole.chunk(size, 1)[rank] if name.split(".")[-2] in ("out", "down") else whole


def tensor_parallel(rank):
    net = model()
    for layer in net.layers:
        cut_layer(layer)
    net.to("sim")
    losses = steps(net, tokens().to("sim"), optimizer(net.parameters()))
    return losses, {name: p.detach().cpu() for name, p in net.named_parameters()}


def one_layer(rank=0, size=1):
    """Return a layer's input gradient and its parameters' gradients; in 64 bits; tokens are split over ranks."""
    layer = model().layers[0].double()
    x = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.double, generator=torch.Generator().manual_seed(2)).flatten(
        0, int(size > 1)
    )
    turn, device = rotation(LENGTH, WIDTH // SIZES["heads"]), "cpu"
    if size > 1:
        cut_tokens(layer, BATCH)
        device = "sim"
    x = x.chunk(size)[rank].to(device).requires_grad_()
    y = layer.to(device)(x, tuple(t.double().to(device) for t in turn))
    y.square().sum().backward()
    return x.grad.cpu().reshape(-1, WIDTH), {name: p.grad.cpu() for name, p in layer.named_parameters()}


def tokens_split(rank):
    return one_layer(rank, dist.get_world_size())


def pipelined(rank, schedule, batches):
    size = dist.get_world_size()
    stage = Stage(model(), rank, size).to("sim")
    order, text = schedule(size, batches)[rank], tokens().to("sim").chunk(batches)
    optimize, losses = optimizer(stage.parameters()), []
    like = torch.empty(BATCH // batches, LENGTH, WIDTH, device="sim")
    for _ in range(STEPS):
        found = run_stage(stage, order, [t[:, :-1] for t in text], lambda y, i: loss_of(y, text[i]) / batches, like)
        optimize.step()
        optimize.zero_grad()
        losses.append(sum(found).item() if found else None)
    return losses, [p.detach().cpu() for p in stage.parameters()], (rank * 4 // size, (rank + 1) * 4 // size)


def zero(rank, stage):
    size, net = dist.get_world_size(), model().to("sim")
    units = shard([net.words, *net.layers, net.norm, net.scores], stage)
    optimize = optimizer([unit.shard for unit in units])
    losses = steps(
        net,
        tokens().chunk(size)[rank].to("sim"),
        optimize,
        lambda: [unit.reduce() for unit in units if stage == 1],
        lambda: [unit.gather() for unit in units if stage < 3],
    )
    for unit in units:
        unit.gather()
    return losses, {name: p.detach().cpu().clone() for name, p in net.named_parameters()}
