"""NCCL under its own name, which programs look for and hand options to."""

from types import SimpleNamespace

from simgpu.torch_glue.here import here


class ProcessGroupNCCL:
    """Stands for torch's class in builds without CUDA; groups of that name are those of simulated ranks."""

    __module__ = "torch.distributed.distributed_c10d"

    def __new__(cls, store=None, rank=None, size=None, options=None):
        """Return a group of all ranks, as torch's tests make one; raises RuntimeError elsewhere."""
        if here() is None or size != here().world.size:
            raise RuntimeError(
                "NCCL joins simulated ranks here: call simgpu.spawn(fn), and dist.new_group for some ranks"
            )
        made = here().world.group(
            SimpleNamespace(
                group_id="ProcessGroupNCCL", group_rank=rank, group_size=size, global_ranks_in_group=list(range(size))
            )
        )
        made.declare("nccl")
        return made

    class Options:
        """What programs ask of NCCL; changes nothing."""

        __module__ = "torch.distributed.distributed_c10d"

        def __init__(self, is_high_priority_stream=False):
            self.is_high_priority_stream = is_high_priority_stream
            self.config = SimpleNamespace()
