"""The networks of published runs that no chapter trains: those of Table 7 of Shi et al. 2016, and others for pictures
and sentences.

Table 7's are as the paper and the authors' published scripts describe them.

Each is a function without arguments that returns a module; `NETWORKS` adds the shape of one batch.
FCN-S, FCN-R, AlexNet-S, ResNet-50 and ResNet-56 follow the papers that they come from; the LSTM has words of 256
numbers, two layers of 256, 32 time steps and a softmax over 10,000 words (Penn Treebank).
"""

import math
from itertools import pairwise

import torch
from torch import nn

import simgpu
from d2lmini.models.alexnet import alexnet
from d2lmini.models.resnet import Residual, conv_and_norm, resnet50

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


def _grouped(width, size, stride, groups):
    return nn.Conv2d(width, width, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(width)


class _Squeeze(nn.Module):
    """Each channel times a number that the means of all channels decide (Hu et al., CVPR 2018)."""

    def __init__(self, channels, few, act):
        super().__init__()
        self.body = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(channels, few),
            act(),
            nn.Linear(few, channels),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return x * self.body(x)[:, :, None, None]


def resnext101(squeeze=False):
    """Return ResNeXt-101 32×4d (Xie et al., CVPR 2017) for pictures [n, 3, 224, 224]: 44,177,704 parameters.

    squeeze: with squeeze-and-excitation, 48,955,416.
    """
    layers, inputs = [*conv_and_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, depth in ((128, 3), (256, 4), (512, 23), (1024, 3)):
        for index in range(depth):
            stride = 2 if width > 128 and not index else 1
            body = [
                *conv_and_norm(inputs, width, 1),
                nn.ReLU(),
                *_grouped(width, 3, stride, 32),
                nn.ReLU(),
                *conv_and_norm(width, 2 * width, 1),
            ]
            body += [_Squeeze(2 * width, width // 8, nn.ReLU)] if squeeze else []
            layers.append(Residual(nn.Sequential(*body), inputs, 2 * width, stride))
            inputs = 2 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class _Inverted(nn.Module):
    """EfficientNet's block: widened `grow` times, a convolution of each channel alone, squeezed, narrow again."""

    def __init__(self, inputs, outputs, grow, size, stride):
        super().__init__()
        wide, self.adds = inputs * grow, stride == 1 and inputs == outputs
        first = [*conv_and_norm(inputs, wide, 1), nn.SiLU()] if grow > 1 else []
        self.body = nn.Sequential(
            *first,
            *_grouped(wide, size, stride, wide),
            nn.SiLU(),
            _Squeeze(wide, inputs // 4, nn.SiLU),
            *conv_and_norm(wide, outputs, 1),
        )

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def efficientnet(width=1.0, depth=1.0):
    """Return EfficientNet-B0 (Tan and Le, ICML 2019): 5,288,548 parameters; with 1.4 and 1.8 B4, 19,341,616."""

    def scaled(channels):  # to the nearest eight, but not by more than a tenth less
        eights = max(8, int(channels * width + 4) // 8 * 8)
        return eights + 8 if eights < 0.9 * channels * width else eights

    inputs = scaled(32)
    layers = [*conv_and_norm(3, inputs, 3, 2), nn.SiLU()]
    for grow, channels, blocks, stride, size in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for index in range(math.ceil(blocks * depth)):
            layers.append(_Inverted(inputs, scaled(channels), grow, size, 1 if index else stride))
            inputs = scaled(channels)
    last = scaled(1280)
    return nn.Sequential(
        *layers,
        *conv_and_norm(inputs, last, 1),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(last, 1000),
    )


class SSD300(nn.Module):
    """Boxes in pictures of 300 × 300 (Liu et al., ECCV 2016), on the first three stages of ResNet-50.

    As in NVIDIA's programs: the third stage keeps its size of 38 × 38, and five more shrink it to 1 × 1; each of the
    six tells, for every place, 4 or 6 boxes of 4 numbers and 81 classes.
    """

    def __init__(self):
        super().__init__()
        body = list(resnet50(late_stride=True))
        self.body = nn.Sequential(*body[: 4 + 3 + 4 + 6])
        first = self.body[4 + 3 + 4]
        first.body[3].stride = first.shortcut[0].stride = (1, 1)
        sizes = [
            (1024, 256, 512, 2, 1),
            (512, 256, 512, 2, 1),
            (512, 128, 256, 2, 1),
            (256, 128, 256, 1, 0),
            (256, 128, 256, 1, 0),
        ]
        self.more = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(a, b, 1, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
                nn.Conv2d(b, c, 3, stride, padding, bias=False),
                nn.BatchNorm2d(c),
                nn.ReLU(),
            )
            for a, b, c, stride, padding in sizes
        )
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
        with simgpu.clock().one_launch():
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
        with simgpu.clock().one_launch():
            for step, (before, c, workspace) in zip(reversed(grad), reversed(ctx.kept)):
                total = step if grad_h is None else step + grad_h
                of_gates, grad_c, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(
                    total, grad_c, before, c, workspace, True
                )
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


_COMMON = (20_000, 20_000, 160_000, 67_735)  # of WikiText-103's words, from the most common on: what is scored together
_SHARES = (0.915, 0.04, 0.04, 0.005)  # of a text, assumed


class _Relative(nn.Module):
    """A layer of Transformer-XL: attention that sees the last segment too, and scores how far apart two words are."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads, inner = heads, 64 * heads
        self.qkv, self.distances = (nn.Linear(width, n * inner, bias=False) for n in (3, 1))
        self.out, self.drop = nn.Linear(inner, width, bias=False), nn.Dropout(0.1)
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x, distances, mask, biases):
        both = torch.cat([x.detach(), x])  # the last segment's numbers are as many, and have no gradient
        q, k, v = (part.unflatten(-1, (self.heads, 64)) for part in self.qkv(both).chunk(3, -1))
        q, r = q[-len(x) :], self.distances(distances).unflatten(-1, (self.heads, 64))
        by_word = torch.einsum("ibhd,jbhd->bhij", q + biases[0].to(q.dtype), k)
        by_place = torch.einsum("ibhd,jhd->bhij", q + biases[1].to(q.dtype), r)
        wide = torch.cat([by_place.new_zeros(*by_place.shape[:-1], 1), by_place], -1)  # row i moves by i places
        by_place = wide.view(*wide.shape[:2], wide.shape[3], wide.shape[2])[:, :, 1:].view_as(by_place)
        scores = ((by_word + by_place) / 8).masked_fill_(mask, float("-inf")).softmax(-1)
        found = torch.einsum("bhij,jbhd->ibhd", scores.to(v.dtype), v)
        x = self.norms[0](x + self.drop(self.out(found.flatten(2))))
        return self.norms[1](x + self.drop(self.body(x)))


class TransformerXL(nn.Module):
    """A language model (Dai et al., ACL 2019) for WikiText-103, as in NVIDIA's PyTorch/LanguageModeling/Transformer-XL.

    Rare words have `shrink` times narrower rows from group to group, and a text's words are scored with their own
    group's only.
    """

    def __init__(self, width, layers, heads, hidden, shrink=1):
        super().__init__()
        widths = [width // shrink**group for group in range(len(_COMMON))]
        self.tables = nn.ModuleList(nn.Embedding(n, w) for n, w in zip(_COMMON, widths))
        self.wider = nn.ModuleList(nn.Linear(w, width, bias=False) if shrink > 1 else nn.Identity() for w in widths)
        self.layers = nn.ModuleList(_Relative(width, heads, hidden) for _ in range(layers))
        self.biases, self.drop = nn.Parameter(torch.empty(2, heads, 64)), nn.Dropout(0.1)

    def _groups(self, words):
        sizes = [round(share * words.numel()) for share in _SHARES[1:]]
        return words.flatten(0, 1).split([words.numel() - sum(sizes), *sizes])

    def forward(self, words):
        """Return what the scores are made of, (length, batch, width), for words (length, batch)."""
        rows = [wider(table(part)) for part, table, wider in zip(self._groups(words), self.tables, self.wider)]
        x = self.drop(torch.cat(rows).unflatten(0, words.shape))
        distances = x.new_zeros(2 * len(x), x.shape[-1])
        mask = x.new_ones(len(x), 2 * len(x)).triu(len(x) + 1).bool()  # no word sees a later one
        for layer in self.layers:
            x = layer(x, distances, mask, self.biases)
        return self.drop(x)

    def loss(self, out):
        """Return the mean of the negative logarithms: all words among the common ones, rare ones in their group too."""
        out, total, few = out.flatten(0, 1), 0.0, self._groups(out[..., 0])
        for group, (table, wider) in enumerate(zip(self.tables, self.wider)):
            x = out if group == 0 else out[: len(few[group])]
            x = x if isinstance(wider, nn.Identity) else x @ wider.weight.to(x.dtype)
            scores = (x @ table.weight.to(x.dtype).t()).float()
            total = total + nn.functional.cross_entropy(scores, scores.new_zeros(len(x), dtype=torch.int64))
        return total
