"""Functions that chapters start in other processes, where a notebook's own cannot be found.

    allreduce    a ring and a disagreement between processes
    ddp          torch's DistributedDataParallel
    trainer      the trainer with one process for each device
"""
