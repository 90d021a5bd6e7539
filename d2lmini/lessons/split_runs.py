"""What the chapters on split models run on simulated ranks: a tiny Llama, two steps of training, and the bytes sent."""

from collections import Counter

import torch
from torch.nn import functional as F

import simgpu
from d2lmini.models.llama import Llama

WIDTH, WORDS = 32, 48
TEXT = torch.randint(WORDS, (8, 17), generator=torch.Generator().manual_seed(1))
INPUTS, TARGETS = TEXT[:, :-1], TEXT[:, 1:]  # 8 sequences of 16 tokens, each to predict the next one
ACTIVATION = 4 * INPUTS.numel() * WIDTH  # bytes of the tensor between two layers


def h100s(gpus, **options):
    """Make simulated H100 GPUs, joined by NVLink."""
    simgpu.enable(gpus, gpu="H100-SXM5-80GB", accelerator=True, **options)


def tiny_llama(layers=4) -> Llama:
    """Return a transformer, the same in each call."""
    torch.manual_seed(0)
    return Llama(width=WIDTH, layers=layers, heads=4, key_heads=4, hidden=64, words=WORDS)


def token_loss(logits, targets):
    """Return the mean cross-entropy of all tokens."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def momentum(parameters):
    """Return the optimizer of every run."""
    return torch.optim.SGD(parameters, 0.5, momentum=0.9, foreach=False)


def two_steps(net, inputs, targets, before_update=None) -> list[float]:
    """Train for two steps; return their losses. before_update(): called when the gradients are there."""
    optimizer, losses = momentum(net.parameters()), []
    for _ in range(2):
        loss = token_loss(net(inputs.to("sim")), targets.to("sim"))
        loss.backward()
        if before_update:
            before_update()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def run_ranks(ranks, program, *args):
    """Run program(rank, *args) on simulated ranks; return the results and the bytes sent by each kind of message."""
    h100s(ranks)
    with simgpu.trace() as trace:
        results, sent = simgpu.spawn(program, args), Counter()
    for span in trace.spans:
        if span.kind == "communication":
            sent[span.name.split()[0]] += span.nbytes
    return results, sent


def mean_losses(results) -> list[float]:
    """Return the mean over ranks of each step's loss."""
    return [sum(step) / len(step) for step in zip(*results)]


def shown(losses) -> str:
    """Return losses as text, on one line."""
    return "\N{NO-BREAK SPACE}".join(f"{loss:.4f}" for loss in losses)


def beside_one(runs, alone):
    """Return headings and rows of a table: {name: (losses, bytes sent, the formula's)} beside the losses of one GPU."""
    rows = [["one GPU", shown(alone), "0", "0"]]
    rows += [[name, shown(losses), *(f"{n:,}" for n in sizes)] for name, (losses, *sizes) in runs.items()]
    return ["", "losses of two steps", "bytes sent, all ranks", "formula"], rows


def agree(runs, alone) -> bool:
    """Say whether all runs have one GPU's losses, and have sent what the formula says."""
    near = all(abs(a - b) < 1e-5 for losses, *_ in runs.values() for a, b in zip(losses, alone, strict=True))
    return near and all(sent == formula for _, sent, formula in runs.values())
