"""A manager of process groups that is one a process, as many training programs have."""

import torch.distributed as dist

manager = None
registry = {}


class Manager:
    """Knows the data-parallel group of its process."""

    latest = None

    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(list(range(self.size)))
        type(self).latest = self.rank


def setup():
    """Make the process's manager."""
    global manager
    manager = Manager()
    registry["rank"] = manager.rank
