"""GoogLeNet of Szegedy et al. (CVPR 2015), without the two auxiliary classifiers: 6,998,552 parameters."""

import torch
from torch import nn

# Of each inception block: inputs; outputs of its 1 × 1, 3 × 3, 5 × 5 and pooled ways; None is a pooling of stride 2.
BLOCKS = (
    (192, 64, (96, 128), (16, 32), 32),
    (256, 128, (128, 192), (32, 96), 64),
    None,
    (480, 192, (96, 208), (16, 48), 64),
    (512, 160, (112, 224), (24, 64), 64),
    (512, 128, (128, 256), (24, 64), 64),
    (512, 112, (144, 288), (32, 64), 64),
    (528, 256, (160, 320), (32, 128), 128),
    None,
    (832, 256, (160, 320), (32, 128), 128),
    (832, 384, (192, 384), (48, 128), 128),
)


class Inception(nn.Module):
    """Four ways side by side, whose channels are joined."""

    def __init__(self, inputs, one, three, five, pooled):
        super().__init__()
        self.ways = nn.ModuleList(
            [
                _conv(inputs, one, 1),
                nn.Sequential(_conv(inputs, three[0], 1), _conv(*three, 3)),
                nn.Sequential(_conv(inputs, five[0], 1), _conv(*five, 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), _conv(inputs, pooled, 1)),
            ]
        )

    def forward(self, x):
        """Return the joined channels for feature maps [n, inputs, height, width]."""
        return torch.cat([way(x) for way in self.ways], 1)


def googlenet(classes=1000):
    """Return GoogLeNet for pictures [n, 3, 224, 224]."""
    blocks = [Inception(*block) if block else _half() for block in BLOCKS]
    return nn.Sequential(
        _conv(3, 64, 7, 2),
        _half(),
        nn.LocalResponseNorm(5),
        _conv(64, 64, 1),
        _conv(64, 192, 3),
        nn.LocalResponseNorm(5),
        _half(),
        *blocks,
        nn.AvgPool2d(7),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(1024, classes),
    )


def _conv(inputs, outputs, size, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2), nn.ReLU())


def _half():
    return nn.MaxPool2d(3, 2, ceil_mode=True)
