"""What can be simulated, and whether this torch can: ``simgpu machines`` and ``simgpu doctor``."""

import platform
import sys
from importlib.util import find_spec


def machines():
    """Return the machines and the cards as text, a line each."""
    from simgpu.hardware.gpus import GPUS
    from simgpu.hardware.machines import MACHINES

    lines = ["machines, for --machine; with --nnodes N a cluster of N:"]
    for name, machine in MACHINES.items():
        network = f"{machine.adapters} × {machine.network.name}" if machine.network else "no network"
        lines.append(f"  {name:<18} {machine.released:<8} {machine.count} × {machine.gpu.name}, {network}")
    lines.append("cards, for --gpu:")
    lines += [f"  {name:<18} {gpu.released:<8} {gpu.memory_bytes / 2**30:.3g} GiB" for name, gpu in GPUS.items()]
    return "\n".join(lines)


def doctor():
    """Return what this torch supports, as text, and whether simulated GPUs can be enabled."""
    import torch

    from simgpu.torch_glue.register import missing

    lacking = missing()
    lines = [
        f"Python {platform.python_version()} on {sys.platform}, torch {torch.__version__}",
        f"simulated GPUs: {'yes' if lacking is None else f'no, this torch lacks {lacking}; 2.11 or later is needed'}",
        f"real CUDA GPUs: {torch.cuda.device_count()}",
    ]
    if lacking is None:
        gone = [f"{patch.owner}.{patch.name}" for patch in _patches() if _absent(patch)]
        lines.append(f"names that this torch lacks, and what needs them does without: {', '.join(gone) or 'none'}")
    found = [name for name in ("numpy", "transformers", "accelerate", "lightning", "safetensors") if find_spec(name)]
    lines.append(f"libraries beside it: {', '.join(found) or 'none'}")
    return "\n".join(lines), lacking is None


def _patches():
    from simgpu.torch_glue.table import PATCHES

    return [patch for patch in PATCHES if "/" not in patch.owner and patch.since]


def _absent(patch):
    owner = patch.owner
    while owner and owner not in sys.modules:
        owner = owner.rpartition(".")[0]
    thing = sys.modules[owner]
    for name in patch.owner[len(owner) :].strip(".").split("."):
        thing = getattr(thing, name, None) if name else thing
    return not hasattr(thing, patch.name)
