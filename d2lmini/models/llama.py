"""A transformer like Llama 3 (Grattafiori et al., arXiv:2407.21783): 8,030,261,248 parameters by default.

What differs from GPT-2: positions turn the queries and keys (Su et al., RoFormer, 2021) in place of a table; several
queries share a key (Ainslie et al., EMNLP 2023); RMSNorm; a gate in the feed-forward network; no biases.
"""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

from d2lmini.models.transformer import split_heads


def rotation(length, width, base=500_000.0, device=None):
    """Return cosine and sine, (length, width ÷ 2) each, of how far each position turns each pair of numbers."""
    speeds = base ** (-torch.arange(0, width, 2, device=device) / width)
    angles = torch.outer(torch.arange(length, device=device), speeds)
    return angles.cos(), angles.sin()


def rotate(x, cosine, sine):
    """Return x of shape (batch, heads, length, width), its pairs (first half, second half) turned."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)


class Layer(nn.Module):
    """Attention with few keys for many queries, then a gated feed-forward network."""

    def __init__(self, width, heads, key_heads, hidden):
        super().__init__()
        self.heads, self.key_heads, keys = heads, key_heads, width // heads * key_heads
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.q, self.k, self.v, self.out = (
            nn.Linear(a, b, bias=False) for a, b in ((width, width), (width, keys), (width, keys), (width, width))
        )
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, turn):
        """Return (batch, length, width) for x of the same shape; `turn` is what `rotation` returns."""
        y = self.norms[0](x)
        q, k = rotate(split_heads(self.q(y), self.heads), *turn), rotate(split_heads(self.k(y), self.key_heads), *turn)
        v, shared = split_heads(self.v(y), self.key_heads), self.heads // self.key_heads
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        x = x + self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        y = self.norms[1](x)
        return x + self.down(silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Token numbers to the scores of the next one."""

    def __init__(self, width=4096, layers=32, heads=32, key_heads=8, hidden=14336, words=128256):
        super().__init__()
        self.words, self.scores = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.layers = nn.ModuleList(Layer(width, heads, key_heads, hidden) for _ in range(layers))
        self.norm, self.head_width = nn.RMSNorm(width, eps=1e-5), width // heads

    def forward(self, tokens):
        """Return scores (batch, length, words); tokens: (batch, length)."""
        x = self.words(tokens)
        turn = rotation(tokens.shape[1], self.head_width, device=tokens.device)
        for layer in self.layers:
            x = layer(x, turn)
        return self.scores(self.norm(x))
