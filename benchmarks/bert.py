"""BERT of Devlin, Chang, Lee and Toutanova (NAACL 2019): a transformer that reads a whole sequence at once."""

import torch
from torch import nn

from d2lmini.models.transformer import Attention, feed_forward


class Layer(nn.Module):
    """Attention, then a feed-forward network; each is added to its input and the sum normalised."""

    def __init__(self, width, heads, dropout, fused):
        super().__init__()
        self.attention, self.mlp = Attention(width, heads, dropout=dropout, fused=fused), feed_forward(width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        """Return (batch, length, width) for x of the same shape."""
        x = self.norms[0](x + self.dropout(self.attention(x)))
        return self.norms[1](x + self.dropout(self.mlp(x)))


class Bert(nn.Module):
    """Token numbers to a vector for each position; BERT-base is the default, with 109,482,240 parameters."""

    def __init__(self, width=768, layers=12, heads=12, words=30522, length=512, dropout=0.1, fused=True):
        """Take the sizes; `words` and `length` are the most that there can be, `fused` is `Attention`'s."""
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, width) for n in (words, length, 2))
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.Sequential(*(Layer(width, heads, dropout, fused) for _ in range(layers)))
        self.pooler = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, tokens, kinds=None):
        """Return (batch, length, width) and, of the first position, (batch, width); tokens: (batch, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        kinds = torch.zeros_like(tokens) if kinds is None else kinds
        x = self.words(tokens) + self.places(places) + self.kinds(kinds)
        x = self.layers(self.dropout(self.norm(x)))
        return x, self.pooler(x[:, 0])
