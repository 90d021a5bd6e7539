"""The networks of published runs that no chapter trains: those of Table 7 of Shi et al. 2016, SSD300, VGG-16.

Table 7's are as the paper and the authors' published scripts describe them.

Each is a function without arguments that returns a module; `NETWORKS` adds the shape of one batch.
FCN-S, FCN-R, AlexNet-S, ResNet-50 and ResNet-56 follow the papers that they come from; the LSTM has words of 256
numbers, two layers of 256, 32 time steps and a softmax over 10,000 words (Penn Treebank).
"""

from itertools import pairwise

from torch import nn

from d2lmini.models.alexnet import alexnet
from d2lmini.models.resnet import resnet50, resnet56

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
