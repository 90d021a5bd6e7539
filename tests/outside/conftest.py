"""Other people's libraries: installed for these tests only, by ``make test-outside``; without them all are skipped."""

from importlib.util import find_spec

import pytest

NEEDED = ("transformers", "accelerate", "lightning", "safetensors", "peft", "torchmetrics")
LACKING = [name for name in NEEDED if find_spec(name) is None]


def pytest_collection_modifyitems(items):
    if LACKING:
        reason = f"needs {', '.join(LACKING)}: make test-outside installs what the extra 'outside' names"
        for item in items:
            if "outside" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def cuda():
    """Two simulated GPUs that go by CUDA's name; accelerate forgets which devices it saw."""
    from accelerate.state import AcceleratorState, GradientState

    import simgpu

    simgpu.enable(2, gpu="A100-SXM4-80GB")
    with simgpu.as_cuda():
        yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    simgpu.disable()


@pytest.fixture
def gpt():
    """A function that makes a tiny GPT-2 with random weights, always the same ones."""
    import torch
    import transformers

    def make():
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            n_layer=2,
            n_head=2,
            n_embd=16,
            vocab_size=32,
            n_positions=16,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
        )
        return transformers.GPT2LMHeadModel(config)

    return make
