"""The check of the lab on a sharded step: its losses, what communication is exposed, and its peak memory."""

from functools import cache

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

import simgpu
from d2lmini.checks.mechanism import Wrong, apart, brief, check, many, need_gpus, reals, scored
from d2lmini.checks.traced import RANKS as GPUS
from d2lmini.checks.traced import must_be_read, run_on_ranks, uncovered_ms
from simgpu.hardware.machines import build

RANKS, LAYERS, WIDTH, ROWS, BATCHES = 2, 4, 192, 192, 2
EXPOSED_MS, BOOK_MS, PEAK_MB, LIMIT_MS = 0.5, 0.32, 13.0, 6.3  # the limit is for work that only fills the time
GATHERS = BATCHES * (2 * LAYERS - 1)  # forward and backward gather each layer, but the last one stays between them
UNIT = "ms of communication are exposed"
RATE = 0.5  # of SGD, which the lab's text names


class Net(nn.Module):
    """The lab's network: equal layers, one after another, in a list `layers`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.began_sharded = None
        self.layers = nn.ModuleList(_layer() for _ in range(LAYERS))

    def __call__(self, x):
        """Note before the first forward pass, whose hooks gather parameters, whether they are sharded."""
        if self.began_sharded is None:
            self.began_sharded = _sharded(self)
        return super().__call__(x)

    def forward(self, x):
        """Return what the last layer returns."""
        for layer in self.layers:
            x = layer(x)
        return x


def _layer():
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


def _sharded(net):
    return all(isinstance(p, DTensor) for p in net.parameters())


@check
def hidden_gathers(function):
    """``function(net, batches)``, on each rank: shard, train by SGD; return losses and each layer's largest output."""
    need_gpus(GPUS)
    given = f"{LAYERS} layers on {many(RANKS, 'rank')}"
    machine = build(max(2, torch.sim.device_count()), "GTX 580", "PCIe3-x16")
    with simgpu.use_clock(simgpu.Clock(machine)), simgpu.trace() as trace:
        found = _run(function, given)
    _compare(given, found)
    if not all(sharded for *_, sharded in found):
        raise Wrong(
            f"{given}: the losses are right, but the parameters are whole on each rank: shard them with fully_shard "
            "before the first forward pass"
        )
    _, _, begin, end, peak, _ = found[0]
    spans = [span for span in trace.spans if span.place == "gpu0" and begin <= span.start_s < end]
    sent, operations = ([span for span in spans if span.kind == kind] for kind in ("communication", "operation"))
    exposed, ms, mb = uncovered_ms(sent, operations), (end - begin) * 1e3, peak / 1e6
    gathers = sum(span.name.startswith("all_gather") for span in sent)
    told = f"{many(gathers, 'all-gather')}, a peak of {mb:.1f} MB, {ms:.1f} ms"
    missed = [f"{exposed:.2f} {UNIT}, at most {EXPOSED_MS} are asked for"] if exposed > EXPOSED_MS else []
    missed += [f"the peak is {mb:.1f} MB, at most {PEAK_MB:g} are asked for"] if mb > PEAK_MB else []
    if not missed and gathers < GATHERS:
        missed = [f"a layer is whole where it need not be: a sharded step takes at least {GATHERS} all-gathers"]
    if not missed and gathers > GATHERS:
        missed = [f"there are {gathers} all-gathers, {GATHERS} are asked for: which layer is freed and needed at once?"]
    if missed:
        raise Wrong(f"{given}: the losses are right, but {'; '.join(missed)} ({told})")
    if ms > LIMIT_MS:
        raise Wrong(f"{given}: the losses are right ({told}), but {LIMIT_MS:g} ms must do: leave out work")
    return f"the losses are right; {scored('hidden_gathers', exposed, BOOK_MS, UNIT)}; {told}"


def _run(function, given):
    try:
        return run_on_ranks(_timed, RANKS, given, function)[0]
    except Wrong as wrong:  # what torch says where the root's unit has taken all parameters, and the layers' have none
        hint = " (fully_shard takes the layers first, and the whole network last)" * ("Invariant" in str(wrong))
        raise Wrong(f"{wrong}{hint}") from wrong


def _batches(rank):
    numbers = torch.Generator().manual_seed(rank)
    return [torch.randn(ROWS, WIDTH, generator=numbers) * (1 + rank) for _ in range(BATCHES)]


def _timed(rank, function):
    """Return the answer, the parameters afterwards, when the call began and ended, its peak memory, if it sharded."""
    net, batches = Net().to("sim"), [batch.to("sim") for batch in _batches(rank)]
    torch.sim.synchronize()
    torch.sim.reset_peak_memory_stats()
    begin = simgpu.now()
    answer = function(net, batches)
    torch.sim.synchronize()
    end, peak = simgpu.now(), torch.sim.max_memory_allocated()
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in net.parameters()]
    sharded = _sharded(net) and net.began_sharded is not False  # None: the layers were called one by one
    return answer, [p.detach().cpu() for p in whole], begin, end, peak, sharded


@cache
def _alone():
    """Return for each rank what one process finds with all ranks' batches, and the parameters afterwards."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    found = [([], []) for _ in range(RANKS)]
    for batches in zip(*map(_batches, range(RANKS))):
        for x, (losses, largest) in zip(batches, found):
            y = x
            for layer in net.layers:
                y = layer(y)
                largest.append(y.abs().max().item())
            loss = F.mse_loss(y, x)
            (loss / RANKS).backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return found, [p.detach() for p in net.parameters()]


def _compare(given, found):
    wanted, parameters = _alone()
    for rank, (want, (answer, got, *_)) in enumerate(zip(wanted, found)):
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise Wrong(f"{given}: rank {rank} should return losses and largest outputs, got {brief(answer)}")
        for name, numbers, told in zip(("losses", "largest outputs"), want, answer):
            must_be_read(told, f"{given}, rank {rank}", f"the {name}")
            values = reals(told, len(numbers))
            if values is None:
                raise Wrong(f"{given}: rank {rank} should return {len(numbers)} {name} as numbers, got {brief(told)}")
            for place, (a, b) in enumerate(zip(numbers, values)):
                if not abs(a - b) <= 1e-3 * abs(a):
                    texts = apart(a, b)
                    raise Wrong(f"{given}: number {place} of rank {rank}'s {name} should be {texts[0]}, got {texts[1]}")
        for place, (a, b) in enumerate(zip(parameters, got)):
            if a.shape != b.shape or not torch.allclose(a, b, rtol=1e-3, atol=1e-5):
                raise Wrong(f"{given}: after training, parameter {place} on rank {rank} is not that of one process")
