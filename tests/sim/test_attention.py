import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

import simgpu


@pytest.fixture(autouse=True)
def gpus():
    simgpu.enable(1, gpu="A100-SXM4-80GB")


def both(shapes, **options):
    """Return the result and the gradients on the CPU and on a simulated GPU, and the operations that ran there."""
    torch.manual_seed(0)
    given, found = [torch.randn(shape) for shape in shapes], []
    for device in ("cpu", "sim"):
        inputs = [x.clone().to(device).requires_grad_() for x in given]
        moved = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
        with simgpu.trace() as trace:
            out = attention(*inputs, **moved)
            out.square().sum().backward()
        found.append([x.detach().cpu() for x in (out, *(x.grad for x in inputs))])
    return *found, [span.name for span in trace.spans if span.kind == "operation"]


USUAL = [(2, 3, 6, 8), (2, 3, 9, 8), (2, 3, 9, 8)]


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (USUAL, {}),
        (USUAL, {"is_causal": True}),
        (USUAL, {"scale": 0.3}),
        (USUAL, {"attn_mask": torch.eye(6, 9) + 1}),
        (USUAL, {"attn_mask": torch.eye(6, 9) == 0}),
        ([(2, 3, 6, 8), (2, 3, 9, 8), (2, 3, 9, 5)], {}),
        ([(2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8)], {"enable_gqa": True}),
        ([(3, 6, 8)] * 3, {}),
    ],
)
def test_attention_is_the_cpus_and_usual_attention_is_one_kernel_each_way(shapes, options):
    cpu, gpu, operations = both(shapes, **options)
    for x, y in zip(cpu, gpu):
        torch.testing.assert_close(x, y)
    if shapes is USUAL:
        assert sum("attention" in name for name in operations) == 2
        assert not any("bmm" in name or "softmax" in name for name in operations)


def test_the_host_does_not_wait_for_attention():
    x = torch.ones(1, 1, 4, 8, device="sim", requires_grad=True)
    with simgpu.trace() as trace:
        attention(x, x, x).sum().backward()
    assert not [span for span in trace.spans if span.kind == "wait"]


def test_dropout_and_inference_mode_give_results():
    x = torch.ones(1, 1, 4, 8, device="sim")
    assert attention(x, x, x, dropout_p=0.5).shape == x.shape
    with torch.inference_mode():
        torch.testing.assert_close(attention(x, x, x).cpu(), torch.ones(1, 1, 4, 8))


def test_memory_grows_with_the_sequence_not_with_its_square():
    def peak(length):
        x = torch.ones(1, 2, length, 16, device="sim", requires_grad=True)
        torch.sim.reset_peak_memory_stats()
        attention(x, x, x, is_causal=True).sum().backward()
        return torch.sim.max_memory_allocated()

    assert peak(1024) < 5 * peak(256)
