"""What can be simulated, and whether this torch can: ``simgpu machines`` and ``simgpu doctor``."""

import platform
import sys
from importlib.util import find_spec

_LIBRARIES = ("numpy", "safetensors", "transformers", "accelerate", "lightning")


def machines():
    """Return the machines and the cards as text, a line each."""
    from simgpu.hardware import GPUS, MACHINES

    lines = ["machines, for --machine; with --nnodes N a cluster of N:"]
    for name, machine in MACHINES.items():
        network = f"{machine.adapters} × {machine.network.name}" if machine.network else "no network"
        lines.append(f"  {name:<18} {machine.released:<8} {machine.count} × {machine.gpu.name}, {network}")
    lines.append("cards, for --gpu:")
    lines += [f"  {name:<18} {gpu.released:<8} {gpu.memory_bytes / 2**30:.3g} GiB" for name, gpu in GPUS.items()]
    return "\n".join(lines)


def doctor():
    """Return what this torch supports, as text, and whether simulated GPUs and ranks run with it."""
    import torch

    import simgpu

    try:
        simgpu.enable(2)
        simgpu.spawn(lambda rank: rank)
        fault = None
    except RuntimeError as error:
        fault = str(error)
    finally:
        simgpu.disable()
    found = [name for name in _LIBRARIES if find_spec(name)]
    lines = [
        f"Python {platform.python_version()} on {sys.platform}, torch {torch.__version__}",
        f"simulated GPUs and ranks: {fault or 'yes'}",
        f"real CUDA GPUs: {torch.cuda.device_count()}",
        f"libraries beside it: {', '.join(found) or 'none'}",
        "",
        str(simgpu.features()),
    ]
    return "\n".join(lines), fault is None
