"""The networks of Table 7 of Shi et al. 2016, as far as the paper and the authors' published scripts describe them.

Each is a function without arguments that returns a module; `NETWORKS` adds the shape of one batch.
FCN-S, FCN-R, AlexNet-S, ResNet-50 and ResNet-56 follow the papers that they come from; the LSTM has words of 256
numbers, two layers of 256, 32 time steps and a softmax over 10,000 words (Penn Treebank).
"""

from itertools import pairwise

from torch import nn

WORDS, STEPS = 10_000, 32


def fcn(*widths):
    """Return a fully connected network with sigmoid between its layers."""
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers[:-1])


def alexnet():
    """Return AlexNet for 224×224 pictures with the widths of 2012 in a single tower, without groups."""
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(96, 256, 5, 1, 2), nn.ReLU(),
        nn.MaxPool2d(3, 2), nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU(), nn.Conv2d(384, 384, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Linear(256 * 6 * 6, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))  # fmt: skip


class Residual(nn.Module):
    """The body and a shortcut, added; the shortcut is a 1×1 convolution where the shape changes."""

    def __init__(self, body, inputs, outputs, stride):
        super().__init__()
        self.body, self.shortcut = body, nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        """Return the sum, rectified; shapes (batch, channels, height, width)."""
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def _conv(inputs, outputs, size, stride=1):
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


def _basic(inputs, width, stride):
    body = nn.Sequential(*_conv(inputs, width, 3, stride), nn.ReLU(), *_conv(width, width, 3))
    return Residual(body, inputs, width, stride)


def _bottleneck(inputs, width, stride):
    body = nn.Sequential(*_conv(inputs, width, 1, stride), nn.ReLU(), *_conv(width, width, 3), nn.ReLU(),
                         *_conv(width, 4 * width, 1))  # fmt: skip
    return Residual(body, inputs, 4 * width, stride)


def _stages(block, inputs, grow, depths, width):
    blocks = []
    for stage, depth in enumerate(depths):
        for index in range(depth):
            stride = 2 if stage and not index else 1
            blocks.append(block(inputs, width << stage, stride))
            inputs = grow * (width << stage)
    return [*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def resnet50():
    """Return ResNet-50 for 224×224 pictures."""
    stem = [*_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *_stages(_bottleneck, 64, 4, (3, 4, 6, 3), 64), nn.Linear(2048, 1000))


def resnet56():
    """Return the ResNet-56 for 32×32 pictures: three stages of nine blocks of 16, 32 and 64 channels."""
    stem = [*_conv(3, 16, 3), nn.ReLU()]
    return nn.Sequential(*stem, *_stages(_basic, 16, 1, (9, 9, 9), 16), nn.Linear(64, 10))


class LSTM(nn.Module):
    """A language model: embedding, two LSTM layers of 256, and a word's score at every step."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(WORDS, 256), nn.LSTM(256, 256, 2), nn.Linear(256, WORDS)

    def forward(self, words):
        """Return scores of shape (steps × batch, words) for words of shape (steps, batch)."""
        return self.out(self.lstm(self.embed(words))[0].flatten(0, 1))


# name: (function that makes the module, shape of one batch's input)
NETWORKS = {
    "FCN-S": (lambda: fcn(26752, 2048, 2048, 2048, 26752), (64, 26752)),
    "AlexNet-S": (alexnet, (16, 3, 224, 224)),
    "ResNet-50": (resnet50, (16, 3, 224, 224)),
    "FCN-R": (lambda: fcn(784, 2048, 4096, 1024, 10), (1024, 784)),
    "ResNet-56": (resnet56, (128, 3, 32, 32)),
    "LSTM": (LSTM, (STEPS, 128)),
}
