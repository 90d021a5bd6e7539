"""Simulated ranks: unmodified `torch.distributed` programs on simulated GPUs, many ranks in one process.

spawn ── scheduler             starts the ranks: threads that take turns, in a fixed order
  ├── interrupt              ends them all on Ctrl+C
  ├── rank ── process          one rank: its device and streams; what it would have for itself as a process
  ├── process_group ── work    the process group that torch calls, and what each call gives back
  │     ├── backend_rules      what NCCL and gloo refuse
  │     ├── collectives ── call, reductions, schedules   a collective each: what it asks for, and what it computes
  │     └── rendezvous         where the ranks' calls meet and are compared
  │           └── communication_costs ── link_traffic, schedules    what a collective or a message takes, and where
  ├── blocking_calls           locks, queues, pipes and files of Python on which a rank would wait: it hands on its turn
  ├── diagnosis                what errors say, and in which line of the program
  └── replicas                 whether ranks have equal replicas of a model
store                          what `torch.distributed`'s stores keep, and how ranks wait for it
tensor_lists                   lists of tensors: what torch hands over, as what holds the values
functional                     torch's operations for collectives on tensors of simulated GPUs
errors                         what goes wrong between ranks
"""

from simgpu.ranks.errors import DeadlockError, MismatchError, RankError

__all__ = ["DeadlockError", "MismatchError", "RankError"]
