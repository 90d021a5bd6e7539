"""What is counted of simulated GPUs, with nothing replaced in torch: time and memory.

clock ── streams, threads, timeline    when work on a device begins and ends, and what happened
  ├── cluster_clock                    the same for programs on the nodes of a cluster
  ├── messages                         what communication occupies
  └── fusion                           what a compiled step does in one kernel
work                                   what an operation computes and moves
memory                                 what is allocated on a device, and its limit
"""
