"""Simulated ranks: unmodified `torch.distributed` programs on simulated GPUs, many ranks in one process.

spawn ── baton                 starts the ranks: threads that take turns, in a fixed order
  ├── rank ── process          one rank: its device and streams; what it would have for itself as a process
  └── group ── work            the process group that torch calls, and what each call gives back
        └── exchange           where the ranks' calls meet and are compared
              ├── options                            what a call asks for
              ├── values, schedules ── reductions    what a collective does with the tensors
              └── costs ── paths, schedules          what it takes, and on which wires
new_groups                     whether all ranks make the same groups
patches                        what is replaced in torch meanwhile
reducer, tracker, shardings    what DDP's reducer, DTensor's random numbers and its rules for sharding need
chunks                         what FSDP2 cuts parameters into
pipelines                      the order in which zero-bubble schedules add up gradients
store, waits                   what `torch.distributed`'s stores keep, and how ranks wait for it
compiling                      what ranks compile, each for itself
functional                     torch's operations for collectives on tensors of simulated GPUs
here                           which rank the calling thread is
errors                         what goes wrong between ranks
"""

from simgpu.ranks.errors import DeadlockError, MismatchError, RankError

__all__ = ["DeadlockError", "MismatchError", "RankError"]
