"""Functions that chapters start in other processes, where a notebook's own cannot be found.

ddp          torch's DistributedDataParallel; scaling: steps and all-reduces, timed on simulated ranks
clusters     a run that goes on after a rank has died, under torchrun
split_runs   what the chapters on split models share: a network, two steps of it, and a table of what ranks sent
split_steps  steps split by tensors, tokens and experts, timed on simulated ranks; pipeline_steps: by stages
"""
