"""What the machines are: figures with their sources, no torch.

gpus, catalog    GPUS and LINKS, from their makers' documents
   │
machines         GPUs and links put together, several nodes too
   │
shares           how much of a GPU's figures is reached  ──▶  products    the time of dense products
   │
costs            what an operation or a copy takes there;  host_costs    what the host spends on it
   │
ring_rates ── collective_costs       what a library's collective takes there

host             the reader's own machine: caches, memory, cores
"""

from simgpu.hardware.catalog import LINKS, Link
from simgpu.hardware.gpus import GPU, GPUS
from simgpu.hardware.host_costs import HOST_COSTS
from simgpu.hardware.machines import MACHINES, Cluster, Machine, build, cluster

__all__ = ["GPU", "GPUS", "HOST_COSTS", "LINKS", "MACHINES", "Cluster", "Link", "Machine", "build", "cluster"]
