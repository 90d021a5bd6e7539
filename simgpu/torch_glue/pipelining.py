"""Pipelining: the order in which gradients add up, the device type of random numbers, and the stages' vote on shapes.

torch keeps parameters, and the nodes of a graph that lead to them, in sets. Which gradient is added first, and so when
each is done, would be others in every run.
"""

from itertools import chain

import torch

from simgpu.device.state import state


class Nodes(dict):
    """Nodes of a graph in the order in which they were met, with as much of a set as torch uses."""

    def __init__(self, nodes):
        super().__init__(dict.fromkeys(nodes))

    def union(self, others):
        """Return these nodes, and then those of the others that are not among them."""
        return Nodes([*self, *others])


def closure(own):
    """Return ``reverse_closure``, with the targets that it met in the order of the graph."""

    def closure(roots, targets, edges):
        found, met = own(roots, targets, edges)
        return found, Nodes(node for node in chain(*edges.values()) if node in met)

    return closure


def fork_rng(own):
    """Return ``torch.random.fork_rng`` that knows ours from the devices that it is given.

    Pipelining of torch 2.12 gives no type of device, which means CUDA.
    """

    def fork_rng(devices=None, *args, **options):
        devices = None if devices is None else list(devices)
        if devices and all(isinstance(device, torch.device) and device.type == "sim" for device in devices):
            options.setdefault("device_type", "sim")
        return own(devices, *args, **options)

    return fork_rng


def groups(own):
    """Return ``get_param_groups``, with the parameters of each group in the order in which they were given."""

    def groups(inputs, parameters, edges):
        found = own(inputs, parameters, edges)
        for group in found:
            group["params"] = [node for node in parameters if node in group["params"]]
        return found

    return groups


def vote(own):
    """Return ``_warmup_p2p`` (from torch 2.15 on ``_initialize_pipeline_distributed_state``), in which stages vote
    whether all of them know their shapes.

    Tensors without numbers hold no votes: every stage must then know its shapes, and no messages are sent.
    """

    def vote(schedule, stages, has_backward, *args):
        if state.real_device.type != "meta":
            return own(schedule, stages, has_backward, *args)
        from torch.distributed.pipelining._utils import InferenceMode

        for stage in stages:
            if InferenceMode.needs_dynamic(stage._user_meta, has_backward):
                raise RuntimeError(
                    f"expected input_args and output_args in PipelineStage {stage.stage_index}, as simulated GPUs that "
                    "hold shapes only cannot send them"
                )
            stage._inference_mode = InferenceMode.STATIC
        return None

    return vote
