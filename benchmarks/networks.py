"""The networks of published runs that no chapter trains: Table 7's of Shi et al. 2016, SSD300, VGG-16, GNMT, BERT.

Table 7's are as the paper and the authors' published scripts describe them.

Each is a function without arguments that returns a module; `NETWORKS` adds the shape of one batch.
FCN-S, FCN-R, AlexNet-S, ResNet-50 and ResNet-56 follow the papers that they come from; the LSTM has words of 256
numbers, two layers of 256, 32 time steps and a softmax over 10,000 words (Penn Treebank).
"""

from itertools import pairwise

import torch
from torch import nn

from d2lmini import sim
from d2lmini.models.alexnet import alexnet
from d2lmini.models.resnet import Residual, conv_and_norm, resnet50
from d2lmini.models.transformer import Attention, feed_forward

WORDS, STEPS = 10_000, 32


def fcn(*widths):
    """Return a fully connected network with sigmoid between its layers."""
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers[:-1])


class LSTM(nn.Module):
    """A language model: embedding, two LSTM layers of 256, and a word's score at every step."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(WORDS, 256), nn.LSTM(256, 256, 2), nn.Linear(256, WORDS)

    def forward(self, words):
        """Return scores of shape (steps × batch, words) for words of shape (steps, batch)."""
        return self.out(self.lstm(self.embed(words))[0].flatten(0, 1))


def resnet56():
    """Return the ResNet-56 of He et al. (CVPR 2016) for pictures [n, 3, 32, 32]: three stages of nine blocks."""
    layers, inputs = [*conv_and_norm(3, 16, 3), nn.ReLU()], 16
    for width in [16] * 9 + [32] * 9 + [64] * 9:
        stride = width // inputs
        body = [*conv_and_norm(inputs, width, 3, stride), nn.ReLU(), *conv_and_norm(width, width, 3)]
        layers.append(Residual(nn.Sequential(*body), inputs, width, stride))
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


# name: (function that makes the module, shape of one batch's input)
NETWORKS = {
    "FCN-S": (lambda: fcn(26752, 2048, 2048, 2048, 26752), (64, 26752)),
    "AlexNet-S": (alexnet, (16, 3, 224, 224)),
    "ResNet-50": (resnet50, (16, 3, 224, 224)),
    "FCN-R": (lambda: fcn(784, 2048, 4096, 1024, 10), (1024, 784)),
    "ResNet-56": (resnet56, (128, 3, 32, 32)),
    "LSTM": (LSTM, (STEPS, 128)),
}


def vgg16():
    """Return VGG-16 of Simonyan and Zisserman (ICLR 2015) for pictures [n, 3, 224, 224]: 138,357,544 parameters."""
    layers, inputs = [], 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    dense = [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
    return nn.Sequential(*layers, nn.Flatten(), *dense, nn.Linear(4096, 1000))


class SSD300(nn.Module):
    """Boxes in pictures of 300 × 300 (Liu et al., ECCV 2016), on the first three stages of ResNet-50.

    As in NVIDIA's programs: the third stage keeps its size of 38 × 38, and five more shrink it to 1 × 1; each of the
    six tells, for every place, 4 or 6 boxes of 4 numbers and 81 classes.
    """

    def __init__(self):
        super().__init__()
        body = list(resnet50(late_stride=True))
        self.body = nn.Sequential(*body[:4 + 3 + 4 + 6])
        first = self.body[4 + 3 + 4]
        first.body[3].stride = first.shortcut[0].stride = (1, 1)
        sizes = [(1024, 256, 512, 2, 1), (512, 256, 512, 2, 1), (512, 128, 256, 2, 1), (256, 128, 256, 1, 0),
                 (256, 128, 256, 1, 0)]  # fmt: skip
        self.more = nn.ModuleList(nn.Sequential(
            nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
            nn.Conv2d(b, c, 3, stride, padding, bias=False), nn.BatchNorm2d(c), nn.ReLU(),
        ) for a, b, c, stride, padding in sizes)  # fmt: skip
        boxes = zip([1024, *(size[2] for size in sizes)], (4, 6, 6, 6, 4, 4))
        self.heads = nn.ModuleList(nn.Conv2d(c, n * (4 + 81), 3, padding=1) for c, n in boxes)

    def forward(self, x):
        """Return six maps of boxes, each (batch, boxes × 85, height, width), for pictures (batch, 3, 300, 300)."""
        maps = [self.body(x)]
        for block in self.more:
            maps.append(block(maps[-1]))
        return [head(x) for head, x in zip(self.heads, maps)]


class _Recurrence(torch.autograd.Function):
    """The steps of one LSTM layer as cuDNN takes them: one call, and the weight's gradient as one product at its end.

    gates: what the inputs add, [steps, batch, 4 × width]; weight: [4 × width, width].
    """

    @staticmethod
    def forward(ctx, gates, weight):
        h = c = gates.new_zeros(gates.shape[1], weight.shape[1])
        kept, outs = [], []
        with sim.clock().one_launch():
            for step in gates:
                before = c
                h, c, workspace = torch.ops.aten._thnn_fused_lstm_cell(step, h @ weight.t(), c)
                kept.append((before, c, workspace))
                outs.append(h)
            out = torch.stack(outs)
        ctx.kept = kept
        ctx.save_for_backward(out, weight)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out, weight), grads, grad_h, grad_c = ctx.saved_tensors, [], None, None
        with sim.clock().one_launch():
            for step, (before, c, workspace) in zip(reversed(grad), reversed(ctx.kept)):
                total = step if grad_h is None else step + grad_h
                of_gates, grad_c, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(
                    total, grad_c, before, c, workspace, True)  # fmt: skip
                grad_h = of_gates @ weight
                grads.append(of_gates)
            gates = torch.stack(grads)
            return gates, gates.flatten(0, 1).t() @ out.flatten(0, 1)


class _Recurrent(nn.Module):
    """One LSTM layer."""

    def __init__(self, inputs, width):
        super().__init__()
        self.inputs, self.hidden = nn.Linear(inputs, 4 * width), nn.Linear(width, 4 * width, bias=False)

    def forward(self, x):
        gates = self.inputs(x)
        return _Recurrence.apply(gates, self.hidden.weight.to(gates.dtype))


class _Additive(nn.Module):
    """Bahdanau's attention, normalized, as separate operations over every pair of positions."""

    def __init__(self, width):
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.bias, self.score = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(width))

    def forward(self, queries, keys):
        queries, keys = queries.transpose(0, 1), keys.transpose(0, 1)
        pairs = self.query(queries).unsqueeze(2) + self.key(keys).unsqueeze(1)
        pairs = torch.tanh(pairs + self.bias.to(pairs.dtype))
        return (torch.softmax(pairs @ self.score.to(pairs.dtype), -1) @ keys).transpose(0, 1)


class GNMT(nn.Module):
    """Translation by recurrent layers (Wu et al., arXiv:1609.08144), as in NVIDIA's PyTorch/Translation/GNMT.

    Encoder and decoder have four LSTM layers of 1024; the encoder's first reads both ways. What the attention finds
    is read by all layers of the decoder after the first. Words are shared, 32,000 of them.
    """

    def __init__(self, words=32_000, width=1024):
        super().__init__()
        self.words, self.dropout = nn.Embedding(words, width), nn.Dropout(0.2)
        self.ways = nn.ModuleList(_Recurrent(width, width) for _ in range(2))
        self.encoder = nn.ModuleList(_Recurrent(inputs, width) for inputs in (2 * width, width, width))
        self.first, self.attention = _Recurrent(width, width), _Additive(width)
        self.decoder = nn.ModuleList(_Recurrent(2 * width, width) for _ in range(3))
        self.out = nn.Linear(width, words)

    def forward(self, words):
        """Return scores (steps, batch, words) for words (steps, batch), read as the source and as the target."""
        x = self.dropout(self.words(words))
        x = torch.cat([way(x) for way in self.ways], -1)
        for number, layer in enumerate(self.encoder):
            new = layer(self.dropout(x))
            x = x + new if number else new
        source, x = x, self.first(self.words(words))
        found = self.attention(x, source)
        for number, layer in enumerate(self.decoder):
            new = layer(torch.cat([self.dropout(x), found], -1))
            x = x + new if number else new
        return self.out(x)


class _BertLayer(nn.Module):
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
    """BERT of Devlin, Chang, Lee and Toutanova (NAACL 2019): token numbers to a vector for each position.

    BERT-base is the default, with 109,482,240 parameters.
    """

    def __init__(self, width=768, layers=12, heads=12, words=30522, length=512, dropout=0.1, fused=True):
        """Take the sizes; `words` and `length` are the most that there can be, `fused` is `Attention`'s."""
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, width) for n in (words, length, 2))
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.Sequential(*(_BertLayer(width, heads, dropout, fused) for _ in range(layers)))
        self.pooler = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, tokens, kinds=None):
        """Return (batch, length, width) and, of the first position, (batch, width); tokens: (batch, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        kinds = torch.zeros_like(tokens) if kinds is None else kinds
        x = self.words(tokens) + self.places(places) + self.kinds(kinds)
        x = self.layers(self.dropout(self.norm(x)))
        return x, self.pooler(x[:, 0])


def bert_large(**options):
    """Return BERT-large, with 335,141,888 parameters."""
    return Bert(width=1024, layers=24, heads=16, **options)
