"""What the transformers of this room share: causal or full attention over several heads, and a feed-forward network."""

from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def split_heads(x, heads):
    """Return (batch, length, width) as (batch, heads, length, width ÷ heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention in several heads.

    Args:
        width: Numbers that stand for a token.
        heads: How many share them.
        causal: Whether a token attends to earlier ones and itself alone.
        dropout: The share of attention weights that training sets to zero.
        fused: Whether one kernel does the whole; False writes out the two products and the softmax between them, whose
            table of length × length weights lies in memory.

    Source: Vaswani et al., NeurIPS 2017.
    """

    def __init__(self, width, heads, causal=False, dropout=0.0, fused=True):
        super().__init__()
        self.heads, self.causal, self.dropout, self.fused = heads, causal, dropout, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        """Return (batch, length, width) for x of the same shape."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        attend = scaled_dot_product_attention if self.fused else _written_out
        dropout = self.dropout if self.training else 0.0
        mixed = attend(q, k, v, is_causal=self.causal, dropout_p=dropout)
        return self.out(mixed.transpose(1, 2).flatten(-2))


def _written_out(q, k, v, is_causal, dropout_p):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if is_causal:
        length = q.shape[-2]
        scores = scores.masked_fill(scores.new_ones(length, length, dtype=bool).triu(1), float("-inf"))
    return nn.functional.dropout(scores.softmax(-1), dropout_p) @ v


def feed_forward(width, approximate="none"):
    """Return the network that works on each position alone: four times as wide inside, GELU between."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))
