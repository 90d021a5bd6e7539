"""What the host spends on an operation, by the way that a step is run: Python, PyTorch, autograd, the driver.

    host    ├─ Python ─ dispatcher ─ autograd ─┼─ launch ─┤        then the GPU's own time runs beside the next one

A GPU waits for its host where this takes longer than the operation: small batches, small networks.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostCost:
    """One way to run a step.

    forward_s: of an operation that Python calls, the launch included. backward_s: of one that C++ calls, autograd's or
    autocast's. low_s, high_s: between which forward_s lies on other hosts. source: where the figures come from.
    fuses: whether generated code does several operations in one kernel, as `sim.model.fusion` has it.
    """

    name: str
    forward_s: float
    backward_s: float
    low_s: float
    high_s: float
    source: str
    fuses: bool = False


HOST_COSTS = {
    cost.name: cost
    for cost in (
        HostCost(
            "eager",
            25e-6,
            12e-6,
            10e-6,
            59e-6,
            "assumed between the ends: a plain function's call at the low one; at the high one ResNet-50 inference in "
            "PyTorch 1.9.0a0 (container pytorch-21.03) on a V100 of a DGX-1, 10.3 ms for 174 operations and all else "
            "in a step, whatever the batch of 1 to 4; between them SAM 2 on an A6000 with PyTorch 2.6, 53.7 ms for "
            "1,185 launches (github.com/facebookresearch/sam2, issue 768)",
        ),
        HostCost(
            "eager, 2021",
            55e-6,
            25e-6,
            45e-6,
            59e-6,
            "fitted on the same rows of NVIDIA DeepLearningExamples, container pytorch-21.03, with the loss and its "
            "report counted as operations; backward assumed: no Python, no module",
        ),
        HostCost(
            "eager, 2021, DGX A100",
            33e-6,
            15e-6,
            31e-6,
            33e-6,
            "fitted on EfficientNet-B0 in 16 bits with one picture at a time, 105 pictures a second in NVIDIA "
            "DeepLearningExamples; backward as much less as on the other host, assumed",
        ),
        HostCost(
            "compiled",
            8e-6,
            8e-6,
            4e-6,
            15e-6,
            "assumed, of the host: torch.compile's generated code, which does little but launch. What it fuses: "
            "torch/_inductor/codegen/simd.py of PyTorch 2.13",
            fuses=True,
        ),
        HostCost("C++", 8e-6, 8e-6, 4e-6, 15e-6, "assumed: a program that calls a library's kernels one by one"),
    )
}
