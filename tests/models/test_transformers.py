import pytest
import torch

from d2lmini.models import GPT2, Llama
from d2lmini.models.llama import rotate, rotation
from d2lmini.models.transformer import Attention


# What Hugging Face's gpt2 and Llama-3.1-8B have.
@pytest.mark.parametrize(("make", "count"), [(GPT2, 124_439_808), (Llama, 8_030_261_248)])
def test_published_sizes(make, count):
    with torch.device("meta"):
        assert sum(p.numel() for p in make().parameters()) == count


SMALL = [lambda: GPT2(16, 2, 2, 11, 8), lambda: Llama(16, 2, 4, 2, 24, 11)]


@pytest.mark.parametrize("make", SMALL)
def test_a_guess_depends_on_earlier_tokens_only(make):
    torch.manual_seed(0)
    model, tokens = make(), torch.randint(11, (1, 8))
    other = tokens.clone()
    other[0, 5] = (other[0, 5] + 1) % 11
    a, b = model(tokens), model(other)
    assert a.shape == (1, 8, 11)
    torch.testing.assert_close(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 5:], b[:, 5:])


@pytest.mark.parametrize("causal", [False, True])
def test_attention_written_out_is_the_fused_one(causal):
    torch.manual_seed(0)
    fused, plain = Attention(16, 4, causal), Attention(16, 4, causal, fused=False)
    plain.load_state_dict(fused.state_dict())
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(fused(x), plain(x))


def test_turned_queries_and_keys_know_only_how_far_they_are_apart():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 8).expand(2, 1, 1, 10, 8)
    cosine, sine = rotation(10, 8)
    products = rotate(q, cosine, sine)[0, 0] @ rotate(k, cosine, sine)[0, 0].T
    torch.testing.assert_close(products[2, 5], products[4, 7])
    assert not torch.allclose(products[2, 5], products[2, 6])
