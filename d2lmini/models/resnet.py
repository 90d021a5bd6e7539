"""Residual networks of He, Zhang, Ren and Sun (CVPR 2016): ResNet-50 to 152 for ImageNet, ResNet-56 for CIFAR-10."""

from functools import partial

from torch import nn


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


def _bottleneck(inputs, width, stride, late):
    first, second = (1, stride) if late else (stride, 1)
    body = nn.Sequential(*_conv(inputs, width, 1, first), nn.ReLU(), *_conv(width, width, 3, second), nn.ReLU(),
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


def resnet50(late_stride=False, depths=(3, 4, 6, 3)):
    """Return ResNet-50 for pictures [n, 3, 224, 224]: 25,557,032 parameters.

    late_stride: halve the picture in a block's 3×3 convolution, as most programs do, not in the 1×1 convolution before
    it, as the paper does; that takes 4.09 in place of 3.86 thousand million multiply-adds a picture.
    depths: the blocks of each stage; (3, 4, 23, 3) makes ResNet-101 and (3, 8, 36, 3) ResNet-152.
    """
    stem = [*_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    block = partial(_bottleneck, late=late_stride)
    return nn.Sequential(*stem, *_stages(block, 64, 4, depths, 64), nn.Linear(2048, 1000))


def resnet56():
    """Return the ResNet-56 for pictures [n, 3, 32, 32]: three stages of nine blocks of 16, 32 and 64 channels."""
    stem = [*_conv(3, 16, 3), nn.ReLU()]
    return nn.Sequential(*stem, *_stages(_basic, 16, 1, (9, 9, 9), 16), nn.Linear(64, 10))
