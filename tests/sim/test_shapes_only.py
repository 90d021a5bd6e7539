import pytest
import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import simgpu
from d2lmini.models import GPT2, LeNet
from simgpu.hardware.machines import build
from simgpu.torch_glue import feature


def step_of(make, *inputs):
    """Return seconds and peak memory of a second training step of a model on ``sim``."""
    model = make().to("sim")
    with torch.device("sim"):
        x, y = (torch.zeros(shape, dtype=dtype) for shape, dtype in inputs)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(2):
        torch.sim.reset_peak_memory_stats()
        with simgpu.trace() as trace:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
            optimizer.step()
            torch.sim.synchronize()
    return trace.seconds, torch.sim.max_memory_allocated()


def mixed():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.LocalResponseNorm(3),
        nn.Dropout(),
        nn.Conv2d(6, 8, 3, groups=2),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(8),
        nn.Linear(8, 10),
    )


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (LeNet, [((5, 1, 28, 28), torch.float32), ((5,), torch.int64)]),
        (mixed, [((33, 1, 28, 28), torch.float32), ((33,), torch.int64)]),
        (lambda: GPT2(32, 2, 2, 50, 16), [((3, 16), torch.int64), ((3, 16), torch.int64)]),
    ],
)
def test_a_step_of_shapes_costs_what_the_same_step_of_numbers_costs(make, inputs):
    found = []
    for shapes_only in (False, True):
        simgpu.enable(1, gpu="V100-SXM2-16GB", shapes_only=shapes_only)
        found.append(step_of(make, *inputs))
        simgpu.disable()
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-9)
    assert found[1][1] == pytest.approx(found[0][1], rel=0.01)  # kernels may order their results otherwise in memory


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_under_the_clock_of_another_machine_a_step_takes_what_it_takes_there(mode):
    batch = [((64, 1, 28, 28), torch.float32), ((64,), torch.int64)]
    simgpu.enable(1, gpu="GTX 1080", shapes_only=True, mode=mode)
    there = step_of(LeNet, *batch)
    simgpu.enable(1, gpu="V100-SXM2-16GB", shapes_only=True)
    own = simgpu.clock()
    with simgpu.use_clock(simgpu.Clock(build(1, "GTX 1080"), mode)):
        assert step_of(LeNet, *batch) == there
    assert simgpu.clock() is own
    assert step_of(LeNet, *batch)[0] < there[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.t() + 1,
        lambda x: (x > 0) + True,
        lambda x: (x > 0) + 1,
        lambda x: x.long() + 1.5,
        lambda x: x.sum(1),
        lambda x: x.sum(1, keepdim=True),
        lambda x: x.max(1),
        lambda x: torch.native_layer_norm(x, [4], None, None, 1e-5),
        lambda x: torch._foreach_add([x, x.t()], 2.0),
        lambda x: x.to(memory_format=torch.preserve_format, copy=True),
        lambda x: torch.cat([x, x], 1),
        lambda x: x.expand(2, 3, 4) * 2,
        lambda x: torch.full_like(x, 2, dtype=torch.int8),
    ],
)
def test_results_of_shapes_are_alike_the_second_time_too(call):
    """Sizes, strides and types, before and after torch's default type changes; each time in memory of its own."""
    wanted = call(torch.ones(3, 4))
    simgpu.enable(1, shapes_only=True)
    before = torch.sim.memory_allocated()
    found = [call(torch.ones(3, 4, device="sim")) for _ in range(3)]
    wanted, *outs = map(torch.utils._pytree.tree_leaves, (wanted, *found))
    told = [[(t.shape, t.stride(), t.dtype) for t in out] for out in (wanted, *outs)]
    assert told[1:] == [told[0]] * 3
    assert len({t.untyped_storage()._cdata for out in outs for t in out}) == 3 * len(wanted)
    torch.set_default_dtype(torch.float64)
    try:
        assert (torch.ones(2, dtype=torch.int64, device="sim") + 1.5).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    del found, outs
    assert torch.sim.memory_allocated() == before


def test_a_terabyte_fits_into_this_machine_but_not_onto_the_gpu():
    simgpu.enable(1, gpu="V100-SXM2-16GB", shapes_only=True, memory=2**41)
    x = torch.ones(2**38, device="sim")
    assert (x + x).nbytes == 2**40
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(2**39, device="sim")


MIXED = {
    "mm": lambda x, y: x @ y,
    "addmm": lambda x, y: torch.addmm(x, y, y),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "conv2d": lambda x, y: torch.nn.functional.conv2d(x[None, None], y[None, None]),
    "index_add": lambda x, y: x.index_add(0, torch.arange(3, device=x.device), y),
    "index_put_": lambda x, y: x.index_put_((torch.arange(3, device=x.device),), y),
    "binary_cross_entropy": lambda x, y: torch.nn.functional.binary_cross_entropy(x, y),
}


@pytest.mark.parametrize("shapes_only", [False, True])
@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED)
def test_two_types_of_number_are_refused_without_numbers_too(call, shapes_only):
    """As a missing autocast would be on a GPU: torch's kernels for shapes alone let it pass."""
    simgpu.enable(1, shapes_only=shapes_only)
    x = torch.ones(3, 3, device="sim")
    assert call(x, x.clone()) is not None
    with pytest.raises(RuntimeError, match=r"(?i)dtype|type"):
        call(x, x.bfloat16())


def test_what_reads_numbers_is_refused():
    simgpu.enable(1, shapes_only=True)
    x = torch.ones(2, device="sim")
    for read in (torch.Tensor.cpu, lambda x: x.tolist(), str, lambda x: x.sum().item(), torch.zeros(2).copy_):
        with pytest.raises(RuntimeError, match="shapes only"):
            read(x)
    assert torch.zeros(3).to("sim").shape == (3,)


def test_tensors_neither_gain_nor_lose_their_numbers():
    simgpu.enable(1)
    x = torch.ones(2, device="sim")
    with pytest.raises(RuntimeError, match="shapes_only"):
        simgpu.enable(1, shapes_only=True)
    assert x.tolist() == [1, 1]
    del x
    simgpu.enable(1, shapes_only=True)


def one_pipeline_step(rank, given):
    x = torch.zeros(4, 8, device="sim", requires_grad=rank > 0)
    ends = (x, x.detach().requires_grad_()) if given else ()
    stage = PipelineStage(nn.Linear(8, 8).to("sim"), rank, 2, x.device, *ends)
    schedule = Schedule1F1B(stage, 2, loss_fn=lambda y, _: y.sum())
    batch = torch.zeros(8, 8, device="sim")
    schedule.step(*([] if rank else [batch]), **({"target": batch} if rank else {}))
    torch.sim.synchronize()
    return simgpu.now()


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_whose_stages_know_their_shapes():
    simgpu.enable(2, gpu="V100-SXM2-16GB", shapes_only=True)
    with simgpu.trace() as trace:
        simgpu.spawn(one_pipeline_step, (True,))
    sent = [span.nbytes for span in trace.spans if span.name.startswith("send")]
    assert sorted(sent)[-4:] == [128] * 4  # two micro-batches there, and their gradients back
    voted = feature.NUMBERS >= (2, 12)  # an older torch sends the shapes themselves
    with pytest.raises(simgpu.RankError, match="output_args" if voted else "shapes only"):
        simgpu.spawn(one_pipeline_step, (False,))


@pytest.mark.parametrize("shapes_only", [False, True])
def test_a_copy_to_meta_reads_nothing_and_crosses_no_link(shapes_only):
    simgpu.enable(1, gpu="V100-SXM2-16GB", shapes_only=shapes_only)
    x = torch.ones(3, 4, dtype=torch.float16, device="sim")[:, 1:]
    with simgpu.trace() as trace:
        y = x.to("meta", torch.float32)
    assert (y.device.type, y.shape, y.dtype) == ("meta", (3, 3), torch.float32)
    assert not [span for span in trace.spans if span.kind == "copy"]
