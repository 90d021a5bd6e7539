"""torch.compile and torch.export of programs on simulated GPUs: the same numbers, and every operation on the clock."""

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import scaled_dot_product_attention as attention

import simgpu

BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def _gpus():
    torch._dynamo.reset()
    simgpu.enable(2, gpu="A100-SXM4-80GB")
    yield
    torch._dynamo.reset()
    simgpu.disable()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_step_agrees_and_is_on_the_clock(backend):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).to("sim:1")
    x, grads, spans = torch.randn(5, 3, device="sim:1"), [], []
    for forward in (net, torch.compile(net, backend=backend, fullgraph=True)):
        with simgpu.trace() as trace:
            loss = forward(x).square().mean()
        loss.backward()
        grads.append([p.grad.clone() for p in net.parameters()])
        spans.append([span.name for span in trace.spans if span.kind == "operation"])
        net.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    assert {str(g.device) for g in grads[1]} == {"sim:1"}
    assert spans[1].count("addmm") == spans[0].count("addmm") == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_is_trained_compiled(backend):
    gradients = []
    for attend in (attention, torch.compile(attention, backend=backend)):
        x = torch.arange(64.0).div(64).view(1, 2, 8, 4).to("sim").requires_grad_()
        attend(x, x, x).square().sum().backward()
        gradients.append(x.grad.cpu())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("backend", BACKENDS)
def test_graph_breaks_new_shapes_and_new_tensors(backend):
    def program(x):
        y = x * torch.ones(3, device=x.device) + torch.zeros(1, device="sim:1")
        return y + y.sum().item()

    compiled = torch.compile(program, backend=backend)
    for rows in (1, 4, 2):
        x = torch.randn(rows, 3, device="sim:1")
        assert torch.equal(compiled(x), program(x))
    module = nn.Linear(3, 3)
    module.compile(backend=backend)
    module.to("sim:0")  # which was compiled on the host
    assert module(torch.ones(2, 3, device="sim:0")).device == torch.device("sim:0")


def test_inductor_is_refused_in_one_sentence():
    with pytest.raises(Exception, match=r"expected torch\.compile.*aot_eager.*got inductor"):
        torch.compile(lambda x: x + 1)(torch.ones(2, device="sim:1"))


def test_export_and_linearize():
    x, module = torch.ones(3, device="sim:1"), nn.PReLU().to("sim:1")
    program = torch.export.export(module, (x,))
    assert torch.equal(program.module()(-x), module(-x))
    scale = torch.full((3,), 2.0, device="sim:1")  # a constant of the traced program
    assert torch.equal(make_fx(lambda x: x * scale)(x)(scale), scale * scale)
    value, product = torch.func.linearize(torch.sin, x)
    assert torch.equal(value, x.sin())
    assert torch.equal(product(x), x.cos())
    module.to("sim:0")  # while the exported program is alive
    assert module(x.to("sim:0")).device == torch.device("sim:0")
