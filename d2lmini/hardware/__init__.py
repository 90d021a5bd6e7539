"""What the machines are: figures with their sources, no torch.

    catalog     GPUS and LINKS, from their makers' documents
       │
    machines    GPUs and links put together, several nodes too
       │
    costs       what an operation or a copy takes there
       │
    ring_rates ── collective_costs       what a library's collective takes there

    host        the reader's own machine: caches, memory, cores
"""

from d2lmini.hardware.catalog import GPU, GPUS, LINKS, Link
from d2lmini.hardware.machines import MACHINES, Cluster, Machine, build, cluster, slower, staged_whole

__all__ = ["GPU", "GPUS", "LINKS", "MACHINES", "Cluster", "Link", "Machine", "build", "cluster", "slower",
           "staged_whole"]  # fmt: skip
