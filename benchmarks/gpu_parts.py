"""What `gpu.py` measures, part by part. Every part runs on CUDA GPUs, on simulated ones and on the CPU alike.

Each returns its part of a result, in the form that `records` checks.
"""

from functools import partial

import torch
from epoch import LR, PerSample, plain_epoch
from networks import NETWORKS
from records import quantity, seconds
from torch import nn
from torch.utils.data import DataLoader

import simgpu
from d2lmini.collectives import on_devices
from d2lmini.collectives.cost_model import busbw
from d2lmini.data.datasets import Batches, load_data_digits
from d2lmini.measuring import transfers
from d2lmini.models.lenet import LeNet
from d2lmini.timing import Measurement, Timer, measure, take_turns
from d2lmini.trainer.trainer import Trainer
from d2lmini.wording import first_line

WARMUP = 3  # epochs: with CUDA graphs a size of batch is compiled in the first, recorded in the second, then replayed
COMPILED = {  # way -> its name, how torch compiles the network
    "compiled": ("compiled", "default"),
    "cuda-graph": ("compiled, forward and backward each a CUDA graph", "reduce-overhead"),
}
STEPS = {"LeNet": (LeNet, (256, 1, 28, 28)), "ResNet-50": NETWORKS["ResNet-50"]}


def digits(count):
    """Return `count` images, uint8 [count, 1, 28, 28], their labels, and a text that says what they are."""
    train, _ = load_data_digits(batch_size=1)
    which = torch.arange(count) % len(train.images)
    told = f"{count:,} images of 28×28: the {len(train.images):,} training digits of scikit-learn, repeated"
    return train.images[which], train.labels[which], told


def trained(batches, devices, mode=None):
    """Return a function that trains a LeNet of its own for one more epoch, compiled in that mode of torch's if any."""
    # dynamic=False: else the short last batch would turn the code into code for any size.
    model = torch.compile(LeNet(), dynamic=False, mode=mode) if mode else LeNet()
    trainer = Trainer(model, nn.CrossEntropyLoss(), partial(torch.optim.SGD, lr=LR), devices)
    return lambda: trainer.fit(batches, 1)


def variants(images, labels, batch_size, device, workers):
    """Return name -> function that trains one epoch, from the plainest way to a trainer with its data on the device."""
    loader = DataLoader(
        PerSample(images, labels), batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    host = Batches(images, labels, batch_size, shuffle=True)
    return {
        f"plain loop, DataLoader with {workers} workers": partial(plain_epoch, loader, LeNet().to(device), device),
        "plain loop, d2lmini's iterator on the host": partial(plain_epoch, host, LeNet().to(device), device),
        "Trainer, iterator on the host": trained(host, [device]),
        "Trainer, data on the device": trained(host.to(device), [device]),
    }


def compiled(batches, device, asked):
    """Return name -> function that trains one epoch, for each of `COMPILED` asked for, and why some are left out.

    Each is tried first. Where a compiler is missing, or fails, everything else must still be measured.
    """
    ways, failed = {}, []
    for way in asked:
        name, mode = COMPILED[way]
        try:
            epoch = trained(batches, [device], mode)
            epoch()
            ways[f"Trainer, data on the device, {name}"] = epoch
        except Exception as error:
            failed.append(f"{way}: {first_line(error)}")
    return ways, failed


def training(data, batch_size, device, rounds, workers, asked):
    """Measure every variant of one epoch of LeNet on one device."""
    images, labels, told = data
    ways = variants(images, labels, batch_size, device, workers)
    more, failed = compiled(Batches(images, labels, batch_size, shuffle=True).to(device), device, asked)
    found = take_turns(ways | more, rounds, WARMUP, [device])
    rows = [{"name": name, "seconds": seconds(m)} for name, m in found.items()]
    note = {"note": f"left out: {'; '.join(failed)}"} if failed else {}
    return {"network": "LeNet", "data": told, "images": len(images), "batch_size": batch_size, "epochs": rows, **note}


def copies(devices, most):
    """Measure the copies along every route between the host and two of the devices, of 1 KiB to `most` bytes."""
    pool = min(transfers.POOL, 16 * most)
    along = transfers.routes(*devices[:2])
    return {"routes": [_route(transfers.measure_route(way, most=most, pool=pool)) for way in along]}


def _route(found):
    fit = found.fit()
    points = [{"size": quantity(n, "bytes"), "seconds": seconds(m)} for n, m in zip(found.sizes, found.measurements)]
    return {
        "name": str(found.route),
        "alpha": quantity(fit.alpha, "s", fit.alpha_interval),
        "beta": quantity(fit.beta, "bytes/s", fit.beta_interval),
        "points": points,
    }


def scaling(data, batch_size, devices, rounds, nbytes):
    """Measure the trainer and an all-reduce on 1, 2, 4, … of the devices; the batch is shared among them."""
    if len(devices) == 1:
        return {"note": "there is one device, so there is nothing to share work with", "rows": []}
    images, labels, _ = data
    there = Batches(images, labels, batch_size, shuffle=True).to(devices[0])
    counts = sorted({1, *(2**k for k in range(1, 10) if 2**k <= len(devices)), len(devices)})
    found = take_turns({count: trained(there, devices[:count]) for count in counts}, rounds, WARMUP, devices)
    rows = [
        {"devices": n, "seconds": seconds(m), **(_allreduce(devices[:n], nbytes, rounds) if n > 1 else {})}
        for n, m in found.items()
    ]
    note = (
        f"one process, the data on {devices[0]}, batches of {batch_size} shared among the devices, gradients and "
        "the all-reduce through d2lmini's ring; NCCL needs a process a device: torchrun"
    )
    return {"note": note, "rows": rows}


def _allreduce(devices, nbytes, rounds):
    tensors = [torch.zeros(nbytes // 4, device=device) for device in devices]
    found = measure(lambda: on_devices.allreduce(tensors), rounds, WARMUP, devices)
    rate = partial(busbw, nbytes, world_size=len(devices))
    ends = [rate(end) for end in reversed(found.interval)]
    return {
        "allreduce": seconds(found),
        "size": quantity(nbytes, "bytes"),
        "busbw": quantity(rate(found.median), "bytes/s", ends, rounds),
    }


def steps(name, device, count, rounds):
    """Return the `Measurement` of one training step, of which `count` are queued before the device is waited for."""
    make, shape = STEPS[name]
    torch.manual_seed(0)
    model, X, y = make().to(device), torch.rand(shape).to(device), (torch.arange(shape[0]) % 10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def several():
        for _ in range(count):
            nn.functional.cross_entropy(model(X), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    several()  # also where the clock is simulated: the first step differs from the others
    if rounds is None:
        timer = Timer([device])
        several()
        return timer.stop() / count
    return Measurement(tuple(s / count for s in measure(several, rounds, 1, [device]).seconds))


def compared(row, copied, stepped, most, count):
    """Return the simulated times of steps and copies next to the measured ones.

    row: the names (GPU, link) that are simulated, with None where no row of `hardware.GPUS` is this card.
    copied: what `copies` returned. stepped: name -> Measurement of a step. This comes last: simulated GPUs change how
    this process runs autograd. Where they fail, the note says how, so that what was measured before is not lost.
    """
    gpu, link = row
    if gpu is None:
        return {"note": link, "rows": []}
    try:
        if not simgpu.is_enabled():
            simgpu.enable(1, gpu=gpu, link=link)
        rows = _compared(copied, stepped, most, count)
    except RuntimeError as error:
        return {"note": f"simulating one {gpu} failed: {first_line(error)}", "rows": []}
    return {"note": f"simulated on one {gpu} behind {link}, the link of the card's generation", "rows": rows}


def _compared(copied, stepped, most, count):
    rows = [
        _pair(f"step of {name}, batches of {STEPS[name][1][0]}", steps(name, "sim:0", count, None), seconds(m))
        for name, m in stepped.items()
    ]
    wanted = {_anonymous(r["name"]): r["points"] for r in copied["routes"]}
    for route in transfers.routes("sim:0"):
        mine = transfers.measure_route(route, most=most)
        points = wanted[_anonymous(str(mine.route))]
        for place in (0, -1):
            size = points[place]["size"]["value"]
            name = f"copy {_anonymous(str(mine.route))}, {size:,} bytes"
            rows.append(_pair(name, mine.seconds[place], points[place]["seconds"]))
    return rows


def _pair(name, simulated, measured):
    ratio = quantity(simulated / measured["value"], "1", [simulated / end for end in reversed(measured["interval"])])
    return {"name": name, "simulated": quantity(simulated, "s"), "measured": measured, "ratio": ratio}


def _anonymous(route):
    """Return a route's name with the first GPU of whatever kind called "GPU"."""
    return route.replace("cuda:0", "GPU").replace("sim:0", "GPU")
