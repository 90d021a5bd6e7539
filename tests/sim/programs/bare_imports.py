"""Import the packages and enable simulated GPUs: nothing of torch changes, and no heavy package is loaded."""

import random
import sys

import numpy
import torch
import torch.cuda.nccl


def state():
    return (
        dict(torch.__dict__),
        dict(torch._C.__dict__),
        dict(torch.Tensor.__dict__),
        torch.get_rng_state().tolist(),
        random.getstate(),
        numpy.random.get_state()[1].tolist(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_default_device(),
        torch.get_num_threads(),
        torch.get_num_interop_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch._C._get_privateuse1_backend_name(),
    )


before, loaded = state(), set(sys.modules)
import d2lmini  # noqa: E402, F401
import simgpu  # noqa: E402

assert state() == before, "importing d2lmini changed something"
simgpu.enable(2)
new = set(sys.modules) - loaded
heavy = {"matplotlib", "psutil", "sklearn", "IPython", "ipywidgets", "torchvision"} & new
rooms = {name for name in new if name.startswith("d2lmini.")}
print(f"rooms: {sorted(rooms)}, heavy: {sorted(heavy)}")
if not torch.cuda.is_available():  # where it is, test_with_cuda asks CUDA itself
    torch.cuda.is_available = lambda: True  # CUDA's own words say that it was asked
    x = torch.ones(3)
    assert not x.is_pinned()
    try:  # torch ends the process when a kernel is called under a key for which it has none
        raise SystemExit(f"pinned without CUDA: {x.pin_memory()}")
    except RuntimeError as error:
        said = str(error)
    assert "CUDA" in said or "NVIDIA" in said
