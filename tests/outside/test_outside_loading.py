"""Weights of a model go to simulated GPUs and into files, whichever way a library moves them."""

import pytest
import torch

import simgpu

pytestmark = pytest.mark.outside


@pytest.fixture
def saved(gpt, tmp_path):
    gpt().save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def tokens():
    return torch.arange(8)[None] % 32


@pytest.fixture
def gpus():
    simgpu.enable(2, gpu="A100-SXM4-80GB")
    yield
    simgpu.disable()


def places(model):
    return {str(p.device) for p in model.parameters()}


def test_save_and_load_on_devices_by_their_own_name(gpus, gpt, tmp_path):
    from safetensors.torch import load_file, save_file
    from transformers import GPT2LMHeadModel

    model = gpt().to("sim:1")
    model.save_pretrained(tmp_path)
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path, device_map="sim:1")
    assert places(loaded) == {"sim:1"}
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    save_file({"w": torch.ones(2, device="sim:0")}, tmp_path / "w")
    assert load_file(tmp_path / "w", device="sim:1")["w"].device == torch.device("sim:1")


def test_dispatch_and_offload_by_their_own_name(gpus, gpt, saved, tokens):
    import accelerate

    with accelerate.init_empty_weights():
        empty = gpt()
    empty.tie_weights()
    everything = {"transformer": "sim:1", "lm_head": "sim:1"}
    assert places(accelerate.load_checkpoint_and_dispatch(empty, saved, device_map=everything)) == {"sim:1"}
    expected = gpt()(tokens).logits
    offloaded = accelerate.cpu_offload(gpt(), execution_device=torch.device("sim:0"))
    torch.testing.assert_close(offloaded(tokens).logits, expected)
    assert torch.sim.max_memory_allocated(0) > 0


@pytest.mark.parametrize("device_map", ["auto", "balanced", {"": 1}, "cuda:1"])
def test_a_device_map_means_simulated_gpus(cuda, gpt, saved, tokens, device_map):
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(saved, device_map=device_map).eval()
    assert places(model) <= {"cuda:0", "cuda:1"}
    expected = gpt().eval()
    torch.testing.assert_close(model(tokens.to(model.device)).logits.cpu(), expected(tokens).logits)
    drawn = model.generate(tokens.to(model.device), max_new_tokens=4, do_sample=False)
    assert torch.equal(drawn.cpu(), expected.generate(tokens, max_new_tokens=4, do_sample=False))


def test_a_model_over_two_gpus(cuda, gpt, saved, tokens):
    import accelerate

    with accelerate.init_empty_weights():
        empty = gpt()
    empty.tie_weights()
    size = sum(p.nbytes for p in gpt().parameters())
    memory = {0: 2 * size // 3, 1: 2 * size}
    model = accelerate.load_checkpoint_and_dispatch(
        empty, saved, device_map="auto", max_memory=memory, no_split_module_classes=["GPT2Block"]
    )
    assert places(model) == {"cuda:0", "cuda:1"}
    torch.testing.assert_close(model.eval()(tokens).logits.cpu(), gpt().eval()(tokens).logits)


def test_a_mixture_of_experts(cuda, tokens):
    import transformers

    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=4,
    )
    model = transformers.MixtralForCausalLM(config).eval()
    expected = model(tokens).logits
    torch.testing.assert_close(model.cuda()(tokens.cuda()).logits.cpu(), expected)


def test_adapters_and_metrics(cuda, gpt, tokens, tmp_path):
    import peft
    import torchmetrics

    model = peft.get_peft_model(gpt(), peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True)).cuda()
    loss = model(input_ids=tokens.cuda(), labels=tokens.cuda()).loss
    loss.backward()
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(gpt().cuda(), tmp_path)
    torch.testing.assert_close(again(input_ids=tokens.cuda(), labels=tokens.cuda()).loss, loss)
    accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3).cuda()
    accuracy.update(torch.eye(3).cuda(), torch.tensor([0, 1, 0]).cuda())
    assert accuracy.compute().item() == pytest.approx(2 / 3)
    assert accuracy.compute().is_cuda
