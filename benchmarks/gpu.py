"""A real card, measured: epochs of LeNet, copies with their fit, several devices, and the simulated card beside it.

On a machine with CUDA GPUs, in the repository's root, with nothing installed but Python 3.10 or newer, torch 2.11 or
newer for CUDA, numpy, scipy, scikit-learn, tqdm, filelock and psutil, and for the first line pytest and matplotlib:

    python -m pytest -m cuda tests/
    python benchmarks/gpu.py

The first runs all tests that need a GPU. The second takes some minutes and writes `chapters/results/<card>.json`, which
`benchmarks/record_figures.py` draws; `benchmarks/records.py` has the form. Wanted on a card like the H200: at most
0.10 s for an epoch of 60,000 images with all that the trainer has: the quickest of its ways.
What torch cannot compile there, without a C compiler for instance, is left out, and a note in the file says so.

    python benchmarks/gpu.py --device sim --out sim.json --images 3000 --networks LeNet       # on simulated GPUs
    python benchmarks/gpu.py --device cpu --out cpu.json --images 6000 --networks LeNet

Only figures of a real card may lie in `chapters/results`: the other devices need `--out FILE`, a place elsewhere.
With `torch.distributed` and NCCL, a process a device, it is `torchrun`'s turn: nothing of that is measured here.
"""

import argparse
import datetime
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that the package need not be installed


def missing(error):
    """Return a line on a package that is not there."""
    name = error.name.partition(".")[0].replace("sklearn", "scikit-learn")
    return f"benchmarks/gpu.py: error: it needs the package {name}: python -m pip install {name}"


try:
    import gpu_parts as parts
    import records
    import stacks
    import torch

    import simgpu
    from d2lmini import timing
    from d2lmini.devices import cpu, processor
    from d2lmini.timing import human
    from d2lmini.wording import first_line
    from simgpu.hardware.gpus import GPUS
    from simgpu.hardware.links import host_link
except ModuleNotFoundError as absent:
    sys.exit(missing(absent))

RESULTS = ROOT / "chapters" / "results"
WANTED_S = 0.10


def choose(kind, count, gpu):
    """Return the devices to measure on; raises RuntimeError where there are not so many."""
    if kind == "cpu":
        return [cpu()] * (count or 1)
    if kind == "sim":
        simgpu.enable(count or 2, gpu=gpu)
        return [torch.device("sim", i) for i in range(torch.sim.device_count())]
    found = torch.cuda.device_count() if torch.cuda.is_available() and torch.version.cuda else 0
    if found < (count or 1):
        raise RuntimeError(
            f"expected {count or 1} or more CUDA devices, found {found}: --device sim --out FILE "
            "measures simulated ones"
        )
    return [torch.device("cuda", i) for i in range(count or found)]


def origin(devices):
    """Return whose figures these are: card, driver, software, date, host."""
    kind = devices[0].type
    card = {"cpu": processor, "sim": lambda: torch.sim.get_device_name(0), "cuda": lambda: _one_name(devices)}[kind]()
    return {
        "device": kind,
        "card": card,
        "cards": len(devices),
        "driver": driver() if kind == "cuda" else "none",
        "torch": torch.__version__,
        "cuda": torch.version.cuda if kind == "cuda" else "none",
        "date": datetime.date.today().isoformat(),
        "host_cpu": processor(),
        "clock": "simulated" if timing.simulated(devices) else "measured",
        "provenance": timing.provenance(devices),
    }


def _one_name(devices):
    names = dict.fromkeys(map(torch.cuda.get_device_name, devices))
    if len(names) > 1:
        raise RuntimeError(f"expected cards of one kind, got {', '.join(names)}: choose some with CUDA_VISIBLE_DEVICES")
    return next(iter(names))


def driver():
    """Return the version of NVIDIA's driver as its own tool tells it, "unknown" where that is missing."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def simulated_row(told):
    """Return the names of the row and the link to simulate for a card, or None and why not."""
    if told["device"] == "sim":
        return simgpu.machine().gpu.name, simgpu.machine().host_link.name
    try:
        card = GPUS[stacks.card(told["card"])]
    except ValueError:
        return None, f"simgpu/hardware/gpus.csv has no row for {told['card']}, so nothing was simulated"
    return card.name, host_link(card)


def target(kind, out, card):
    """Return where to write; raises ValueError where figures of no real card would lie among those of real ones."""
    path = RESULTS / f"{records.slug(card)}.json" if out is None else out.resolve()
    if kind != "cuda" and path.is_relative_to(RESULTS):
        raise ValueError(
            f"--device {kind}: only figures of a real card may lie in chapters/results: name another "
            "place with --out FILE"
        )
    if not path.parent.is_dir():
        raise ValueError(f"--out: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):  # known now, not when all is measured
        raise ValueError(f"--out: {path} cannot be written: {'is a folder' if path.is_dir() else 'permission denied'}")
    return path


def compiled(asked, kind):
    """Return which of the ways to compile can be measured on a kind of device: simulated GPUs compile nothing."""
    fit = {"sim": (), "cpu": ("compiled",), "cuda": tuple(parts.COMPILED)}[kind]
    return [way for way in asked if way in fit]


def run(options):
    """Measure everything, print each part as soon as it is there, write all, and return it."""
    os.environ["TQDM_DISABLE"] = "1"  # a progress bar takes its share of a fast epoch
    devices = choose(options.device, options.devices, options.gpu)
    told = origin(devices)
    path = target(options.device, options.out, told["card"])
    data = parts.digits(options.images)
    result = {"schema": records.FORM["schema"], "origin": told}
    print(f"{told['cards']} × {told['card']}: {told['provenance']}, driver {told['driver']}, CUDA {told['cuda']}")
    _add(
        result,
        "training",
        parts.training(
            data,
            options.batch_size,
            devices[0],
            options.rounds,
            options.workers,
            compiled(options.compile, told["device"]),
        ),
    )
    _add(result, "copies", parts.copies(devices, options.most))
    _add(result, "scaling", parts.scaling(data, options.batch_size, devices, options.rounds, options.allreduce_bytes))
    stepped = {name: parts.steps(name, devices[0], options.steps, options.rounds) for name in options.networks}
    row = simulated_row(told)
    _add(result, "simulated", parts.compared(row, result["copies"], stepped, options.most, options.steps))
    records.write(path, result)
    print(f"written to {path}")
    return result


def _add(result, name, part):
    result[name] = part
    print("", *LINES[name](part), sep="\n", flush=True)


def _training(part):
    yield f"seconds an epoch of {part['network']}, batches of {part['batch_size']}; {part['data']}"
    for row in part["epochs"]:
        yield f"  {row['name']:62}{_told(row['seconds'])}"
    if "note" in part:
        yield f"  {part['note']}"
    yield f"  (wanted of the quickest, on a card like the H200 with 60,000 images: at most {human(WANTED_S)})"


def _copies(part):
    yield "copies: α, β"
    for row in part["routes"]:
        yield f"  {row['name']:32}{human(row['alpha']['value']):>9} {row['beta']['value'] / 1e9:9.2f} GB/s"


def _scaling(part):
    yield f"several devices: {part['note']}"
    for row in part["rows"]:
        rate = f"  all-reduce: busbw {row['busbw']['value'] / 1e9:.2f} GB/s" if "busbw" in row else ""
        yield f"  {row['devices']} device{'s' * (row['devices'] > 1)}: {_told(row['seconds'])}{rate}"


def _simulated(part):
    yield f"simulated against measured: {part['note']}"
    for row in part["rows"]:
        ends = [human(row[name]["value"]) for name in ("simulated", "measured")]
        yield f"  {row['name']:48}{ends[0]:>9} {ends[1]:>9}  ratio {row['ratio']['value']:.3f}"


LINES = {"training": _training, "copies": _copies, "scaling": _scaling, "simulated": _simulated}


def _told(found):
    return f"{human(found['value']):>9} (95 % interval {' to '.join(map(human, found['interval']))})"


def parse(words=None):
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "sim", "cpu"), default="cuda")
    parser.add_argument("--devices", type=int, metavar="N", help="how many; by default all, 2 simulated, 1 CPU")
    parser.add_argument("--gpu", choices=list(GPUS), default="GTX 1080", metavar="NAME", help="that is simulated")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write here, not to chapters/results")
    parser.add_argument("--images", type=int, default=60_000, help="in an epoch")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9, help="measured epochs of each variant, at least 6")
    parser.add_argument("--workers", type=int, default=4, help="processes of the DataLoader")
    parser.add_argument(
        "--compile",
        nargs="+",
        choices=("none", *parts.COMPILED),
        default=list(parts.COMPILED),
        metavar="WAY",
        help=f"ways to compile a step: {', '.join(parts.COMPILED)}; none",
    )
    parser.add_argument("--most", type=int, default=parts.transfers.SIZES[-1], help="bytes of the largest copy")
    parser.add_argument("--allreduce-bytes", type=int, default=2**26, help="of each device's tensor")
    parser.add_argument("--steps", type=int, default=10, help="queued before the device is waited for")
    parser.add_argument("--networks", nargs="+", choices=list(parts.STEPS), default=list(parts.STEPS))
    options = parser.parse_args(words)
    if options.rounds < 6:
        parser.error(f"argument --rounds: a 95 % interval of the median needs at least 6, got {options.rounds}")
    return options


def main(words=None):
    """Measure as the command line says, and return the exit code; what cannot be done is one line on stderr."""
    try:
        run(parse(words))
    except ModuleNotFoundError as error:
        print(missing(error), file=sys.stderr)
        return 1
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        print(f"benchmarks/gpu.py: error: {first_line(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
