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


def causal_attention(q, k, v):
    """Return attention of each token to those up to itself; all shapes are (batch, heads, length, width)."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


class Layer(nn.Module):
    """Attention with few keys for many queries, then a gated feed-forward network.

    Another function can take the place of its `attention`: of a sequence that is split over ranks.
    """

    def __init__(self, width, heads, key_heads, hidden):
        super().__init__()
        self.heads, self.key_heads, keys = heads, key_heads, width // heads * key_heads
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.q, self.k, self.v, self.out = (
            nn.Linear(a, b, bias=False) for a, b in ((width, width), (width, keys), (width, keys), (width, width))
        )
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.attention = causal_attention

    def forward(self, x, turn):
        """Return (batch, length, width) for x of the same shape; `turn` is what `rotation` returns."""
        y = self.norms[0](x)
        q, k = rotate(split_heads(self.q(y), self.heads), *turn), rotate(split_heads(self.k(y), self.key_heads), *turn)
        v, shared = split_heads(self.v(y), self.key_heads), self.heads // self.key_heads
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(-2))
        y = self.norms[1](x)
        return x + self.down(silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Token numbers to the scores of the next one."""

    def __init__(self, width=4096, layers=32, heads=32, key_heads=8, hidden=14336, words=128256):
        super().__init__()
        self.words, self.scores = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.layers = nn.ModuleList(Layer(width, heads, key_heads, hidden) for _ in range(layers))
        self.norm, self.head_width = nn.RMSNorm(width, eps=1e-5), width // heads

    def forward(self, tokens, turn=None):
        """Return scores (batch, length, words); tokens: (batch, length).

        turn: what `rotation` returns for the tokens' positions; None for those from 0 on.
        """
        x = self.words(tokens)
        turn = rotation(tokens.shape[1], self.head_width, device=tokens.device) if turn is None else turn
        for layer in self.layers:
            x = layer(x, turn)
        return self.scores(self.norm(x))


class Stage(nn.Module):
    """Some consecutive layers of a `Llama`, the stage of a pipeline, with what belongs to the network's two ends."""

    def __init__(self, net, number, count):
        super().__init__()
        each = len(net.layers) // count
        self.layers = net.layers[number * each : (number + 1) * each]
        self.words = net.words if number == 0 else None
        self.norm, self.scores = (net.norm, net.scores) if number == count - 1 else (None, None)
        self.head_width = net.head_width

    def forward(self, x):
        """Return (batch, length, width), of the last stage scores; x: the same, of the first stage tokens."""
        x = x if self.words is None else self.words(x)
        turn = rotation(x.shape[1], self.head_width, device=x.device)
        for layer in self.layers:
            x = layer(x, turn)
        return x if self.norm is None else self.scores(self.norm(x))
