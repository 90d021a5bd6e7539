"""Compiled steps: what is done in one kernel, what it moves, and what published steps gain from it."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import simgpu
from d2lmini.models import GPT2

N = 2**20
BYTES = 4 * N


@pytest.fixture(autouse=True)
def _gpus():
    simgpu.enable(2, gpu="A100-SXM4-40GB", shapes_only=True, mode="compiled")


def ones(*shape):
    return torch.ones(shape, device="sim:0")


def kernels(step, *args):
    """Return the names and the bytes of the kernels of ``step(*args)``; each costs the host one launch."""
    torch.sim.synchronize(0)
    with simgpu.trace() as trace:
        kept = step(*args)
        torch.sim.synchronize(0)
    del kept
    spans = [span for span in trace.spans if span.kind == "operation"]
    assert len(spans) == sum(span.kind == "launch" for span in trace.spans)
    assert trace.busy_seconds()["gpu0"] == pytest.approx(sum(span.seconds for span in spans))
    return [(span.name, span.nbytes) for span in spans]


def test_a_chain_reads_its_input_once_and_writes_its_last_result():
    x = ones(N)
    assert kernels(lambda: (x * x + x).tanh().sum()) == [("mul+add+tanh+sum", BYTES + 4)]
    assert kernels(lambda: (x * 2).relu_()) == [("mul+relu_", 2 * BYTES)]


@pytest.mark.parametrize(
    "between",
    [
        lambda y: y.view(1024, 1024) @ y.view(1024, 1024),
        lambda y: torch.sim.synchronize(0),
        lambda y: torch.sim.Event().record(),
        lambda y: y.to("sim:1"),
    ],
    ids=["product", "wait", "event", "copy"],
)
def test_what_ends_a_chain(between):
    y = ones(N) + 1
    between(y)
    assert kernels(lambda: y + 1) == [("add", 2 * BYTES)]

    def step():
        y = x + 1
        z = between(y)
        return y + 1, z

    x = ones(N)
    names = [name for name, _ in kernels(step)]
    assert names[0] == names[-1] == "add"


def test_other_sizes_and_other_streams_end_a_chain_too():
    x = ones(N)
    assert len(kernels(lambda: (x + 1)[: N // 2] + 1)) == 2
    assert len(kernels(lambda: (x + 1, ones(N) + 1))) > 2  # nothing in common

    def two_streams():
        y = x + 1
        with torch.sim.stream(torch.sim.Stream(0)):
            return y + 1

    assert len(kernels(two_streams)) == 2


def test_what_is_read_again_later_is_written_by_then():
    x, square = ones(N), ones(1024, 1024)

    def step():
        y = x + 1
        z = y.tanh()
        square @ square
        return z, y + 2

    moved = kernels(step)
    assert moved[0] == ("add+tanh", 2 * BYTES)
    assert moved[2] == ("add", 3 * BYTES)  # the reading, the writing that was left out before, and its own result


def test_a_compiled_function_is_fused_on_an_eager_machine():
    simgpu.enable(1, gpu="A100-SXM4-40GB")
    torch._dynamo.reset()
    x = ones(N).requires_grad_()
    compiled = torch.compile(lambda x: (x.exp() + 1).sin(), backend="aot_eager")
    compiled(x).sum().backward()
    assert [name for name, _ in kernels(compiled, x)] == ["exp+add+sin"]
    assert len(kernels(lambda: (compiled(x), compiled(x)))) == 2  # two calls are two programs
    assert len(kernels(lambda: (x.exp() + 1).sin())) == 3
    y = compiled(x)
    ours = [name for name, _ in kernels(lambda: y.backward(torch.ones_like(x)))]
    assert max(name.count("+") for name in ours) >= 1


def test_inductor_takes_average_pools_apart_and_the_clock_does_not():
    from torch._inductor.lowering import fallbacks, lowerings

    gradient = torch.ops.aten.avg_pool2d_backward.default
    assert gradient in lowerings.keys() - fallbacks

    def step():
        y = x.relu()
        nn.functional.avg_pool2d(y, 2).backward(grad)
        return y

    x, grad = ones(8, 4, 16, 16).requires_grad_(), ones(8, 4, 8, 8)
    assert [name for name, _ in kernels(step)][-2:] == ["avg_pool2d_backward", "threshold_backward"]


class ByHand(nn.Module):
    """GELU as nanoGPT wrote it: eight operations."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3.0))))


def seconds_of_nanogpt(mode):
    simgpu.enable(1, gpu="A100-SXM4-40GB", shapes_only=True, memory=2**40, mode=mode)
    with torch.device("sim:0"):
        model, tokens = GPT2(), torch.zeros(12, 1024, dtype=torch.int64)
    for layer in model.layers:
        layer.attention.fused, layer.mlp[1] = False, ByHand()
    update = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        torch.sim.synchronize()
        with simgpu.trace() as trace:
            with torch.autocast("sim", torch.bfloat16):
                loss = cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            update.step()
            update.zero_grad()
    return trace.seconds


def test_a_published_step_gains_what_it_gained():
    """nanoGPT's README, 29 December 2022, attention written out: "from ~250ms / iter to 135ms / iter" on an A100."""
    eager, compiled = map(seconds_of_nanogpt, ("eager", "compiled"))
    assert eager == pytest.approx(0.250, rel=0.1)
    assert compiled == pytest.approx(0.135, rel=0.1)
    assert eager / compiled == pytest.approx(250 / 135, rel=0.1)
