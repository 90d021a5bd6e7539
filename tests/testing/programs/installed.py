"""The installed simgpu, whose environment the argument names: importing it changes nothing until GPUs are enabled."""

import sys

import simgpu

assert "torch" not in sys.modules, "import simgpu loads torch"
assert sys.argv[1] in simgpu.__file__, simgpu.__file__
import torch  # noqa: E402

names = {name: id(value) for name, value in vars(torch.Tensor).items()}
from simgpu import hardware, testing  # noqa: E402, F401

assert names == {name: id(value) for name, value in vars(torch.Tensor).items()}, "an import changes torch.Tensor"
assert not hasattr(torch, "sim")
simgpu.enable(2, gpu="A100-SXM4-80GB")
x = torch.arange(4.0, device="sim:1")
assert x.sum().item() == 6
assert x.device == torch.device("sim:1")
print(len(hardware.GPUS))
