import pytest
import torch
from torch.nn.functional import rms_norm

import simgpu


@pytest.fixture(autouse=True)
def gpus():
    simgpu.enable(1, gpu="A100-SXM4-80GB")


def both(shape, norm, dtype, weighted, wanted=(True, True), weights=None):
    """Return result and gradients on the CPU and on a simulated GPU, and the operations that ran there."""
    torch.manual_seed(0)
    x, weight = torch.randn(shape, dtype=dtype), torch.randn(norm, dtype=weights or dtype) if weighted else None
    found = []
    for device in ("cpu", "sim"):
        inputs = [t if t is None else t.clone().to(device).requires_grad_(want) for t, want in zip((x, weight), wanted)]
        with simgpu.trace() as trace:
            out = rms_norm(inputs[0], norm, inputs[1], 1e-5)
            out.backward(torch.ones_like(out))
        grads = (t.grad for t in inputs if t is not None and t.requires_grad)
        found.append([t.detach().cpu() for t in (out, *grads)])
    return *found, [span.name for span in trace.spans if span.kind == "operation" and "ones" not in span.name]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "norm", "weighted", "wanted"),
    [
        ((3, 5, 8), (8,), True, (True, True)),
        ((3, 5, 8), (5, 8), True, (True, True)),
        ((4, 8), (8,), False, (True, True)),
        ((4, 8), (8,), True, (True, False)),
        ((4, 8), (8,), True, (False, True)),
        ((0, 8), (8,), True, (True, True)),
        ((8,), (8,), True, (True, True)),
    ],
)
def test_rms_norm_is_the_cpus_and_one_operation_each_way_as_on_cuda(shape, norm, weighted, wanted, dtype):
    cpu, gpu, operations = both(shape, norm, dtype, weighted, wanted)
    for x, y in zip(cpu, gpu, strict=True):
        torch.testing.assert_close(x, y)
    assert operations == ["_fused_rms_norm", "_fused_rms_norm_backward"]
    assert torch.equal(cpu[0], gpu[0])


def test_with_weights_of_another_type_rms_norm_is_written_out_as_on_cuda():
    with pytest.warns(UserWarning, match="Mismatch dtype"):
        cpu, gpu, operations = both((4, 8), (8,), torch.bfloat16, True, weights=torch.float32)
    for x, y in zip(cpu, gpu, strict=True):
        torch.testing.assert_close(x, y)
    assert len(operations) > 10


def test_rms_norm_runs_in_inference_mode_compiled_and_twice_differentiated():
    x = torch.ones(2, 8, device="sim", requires_grad=True)
    with torch.inference_mode():
        torch.testing.assert_close(rms_norm(x, [8]).cpu(), torch.ones(2, 8))
    compiled = torch.compile(lambda x: rms_norm(x, [8]), backend="aot_eager")
    torch.testing.assert_close(compiled(x).detach().cpu(), torch.ones(2, 8))
    (grad,) = torch.autograd.grad(rms_norm(x, [8]).sin().sum(), x, create_graph=True)
    grad.sum().backward()
    assert x.grad.shape == x.shape
