"""The schedules of `torch.distributed.pipelining`: which stages a rank has, and the order of its steps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

from d2lmini.parallel.pipeline import gpipe, one_f_one_b

SCHEDULES = {
    "GPipe": pipelining.ScheduleGPipe,
    "1F1B": pipelining.Schedule1F1B,
    "interleaved 1F1B": pipelining.ScheduleInterleaved1F1B,
    "zero-bubble": pipelining.ScheduleInterleavedZeroBubble,
    "zero-bubble V": pipelining.ScheduleZBVZeroBubble,
    "DualPipeV": pipelining.ScheduleDualPipeV,
}
ONE_STAGE = {
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
}  # torch lists these wrongly, without the last rank's F0, to torch 2.13
V_SHAPED = ("zero-bubble V", "DualPipeV")


def stage_numbers(name, rank, ranks):
    """Return the numbers of the stages that a rank has.

    The first two schedules have one stage a rank, the others two: rank r has the r-th of both halves, or, in the shape
    of a V, the r-th from the start and from the end.
    """
    if name in ONE_STAGE:
        return [rank]
    return [rank, 2 * ranks - 1 - rank if name in V_SHAPED else ranks + rank]


def orders(rank, micro_batches):
    """Return {schedule's name: for each rank its steps (stage, kind, micro-batch)}; run it with `simgpu.spawn`.

    The kinds are those of `pipeline.start_times`. Of pairs that may overlap, the forward comes first.
    """
    ranks, found = dist.get_world_size(), {}
    for name, schedule in SCHEDULES.items():
        if name in ONE_STAGE:
            by_stage = ONE_STAGE[name](ranks, micro_batches)
            found[name] = [[(stage, *step) for step in order] for stage, order in enumerate(by_stage)]
            continue
        numbers = stage_numbers(name, rank, ranks)
        stages = [pipelining.PipelineStage(nn.Identity(), i, 2 * ranks, torch.device("sim", rank)) for i in numbers]
        listed = schedule(stages, micro_batches, loss_fn=nn.MSELoss()).pipeline_order
        found[name] = [list(_steps(listed[rank])) for rank in range(ranks)]
    return found


def _steps(actions):
    """Yield the steps that compute: actions may be idle, overlap two steps, or send."""
    for action in filter(None, actions):
        if action.sub_actions:
            yield from _steps(action.sub_actions)
        elif action.computation_type.value in "FBIW":
            yield action.stage_index, action.computation_type.value, action.microbatch_index
