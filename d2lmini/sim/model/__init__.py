"""What simulated GPUs are, with nothing replaced in torch.

    clock ── streams, threads, timeline    when work on a device begins and ends, and what happened
      ├── cluster_clock                    the same for programs on the nodes of a cluster
      └── messages                         what communication occupies
    work                                   what an operation computes and moves
    memory                                 what is allocated on a device, and its limit
"""
