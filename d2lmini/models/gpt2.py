"""GPT-2 of Radford et al. (2019): a transformer that guesses each next token from those before it."""

import torch
from torch import nn

from d2lmini.models.transformer import Attention, feed_forward


class Layer(nn.Module):
    """Attention to earlier positions, then a feed-forward network; each reads normalised input and adds to it."""

    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention, self.mlp = Attention(width, heads, causal=True), feed_forward(width, "tanh")

    def forward(self, x):
        """Return (batch, length, width) for x of the same shape."""
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class GPT2(nn.Module):
    """Token numbers to the scores of the next one; the smallest is the default, with 124,439,808 parameters.

    The scores are products with the words' own vectors, so both share one weight. `words` is often rounded up to
    50,304, a multiple of 64, for the tensor cores.
    """

    def __init__(self, width=768, layers=12, heads=12, words=50257, length=1024):
        """Take the sizes; `words` and `length` are the most that there can be."""
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, tokens):
        """Return scores (batch, length, words); tokens: (batch, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.scores(self.norm(self.layers(self.words(tokens) + self.places(places))))
