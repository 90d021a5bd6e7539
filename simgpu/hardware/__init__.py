"""What the machines are and what work costs there: figures with their sources, no torch.

gpus, links                  GPUS and LINKS, from their makers' documents
   │
topology ── machines         the route of a copy in a machine or cluster; MACHINES, with their sources
   │
shares ── gemm               how much of a GPU's peak is reached; the time of a matrix multiplication
   │
op_costs                     the time of an operation or a copy, and what the host spends to launch it
   │
rings ── collective_costs    the time of a collective, by NCCL's algorithms and protocols
"""

from simgpu.hardware.gpus import GPU, GPUS
from simgpu.hardware.links import LINKS, Link
from simgpu.hardware.machines import MACHINES, build, cluster
from simgpu.hardware.op_costs import HOST_COSTS
from simgpu.hardware.topology import Cluster, Machine

__all__ = ["GPU", "GPUS", "HOST_COSTS", "LINKS", "MACHINES", "Cluster", "Link", "Machine", "build", "cluster"]
