"""Functions that chapters start in other processes, where a notebook's own cannot be found.

allreduce    the chapter's schedules between processes, and their times
ddp          torch's DistributedDataParallel
clusters     a sum over two levels, under torchrun
split_steps  steps split by tensors, stages, tokens and experts, timed on simulated ranks
"""
