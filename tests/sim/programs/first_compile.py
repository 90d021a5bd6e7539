"""Compile before anything has loaded dynamo: nothing may break the graph."""

import torch

import simgpu

simgpu.enable(1)
print(torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)(torch.ones(2, device="sim")).tolist())
