"""AlexNet, of Krizhevsky, Sutskever and Hinton (NeurIPS 2012), in the variants that go by this name.

- `alexnet(groups=2, norm=True, dropout=0.5)` is the network of 2012, 60,965,224 parameters. Its two halves, the groups,
  lay on two GPUs and met in conv3 and in the dense layers only.
- `alexnet()` has the same widths in one tower, and neither normalisation nor dropout: 62,378,344 parameters.
- `alexnet(widths=WIDTHS_2014)` is the one of Krizhevsky's program cuda-convnet2 (2014), and of torchvision but for the
  dropout: 61,100,840 parameters. His paper, "One weird trick for parallelizing convolutional neural networks", has 384
  kernels in conv4 where both have 256.
"""

from collections import OrderedDict
from functools import partial

from torch import nn

WIDTHS_2012 = (96, 256, 384, 384, 256)
WIDTHS_2014 = (64, 192, 384, 256, 256)


def alexnet(groups=1, norm=False, dropout=0.0, widths=WIDTHS_2012, classes=1000):
    """Return AlexNet for pictures [n, 3, 224, 224] as an `nn.Sequential` of named layers.

    Args:
        groups: 2 splits conv2, conv4 and conv5 into halves that see half of the channels each.
        norm: Whether conv1 and conv2 are followed by local response normalisation, with the constants of the paper.
        dropout: The probability before fc6 and fc7; 0 for none.
        widths: Outputs of the layers.
        classes: Outputs of the last layer.
    """
    a, b, c, d, e = widths
    normalise = partial(nn.LocalResponseNorm, 5, alpha=1e-4 * 5, beta=0.75, k=2)  # torch divides alpha by 5
    layers = OrderedDict(
        conv1=nn.Conv2d(3, a, 11, 4, 2),
        relu1=nn.ReLU(),
        norm1=normalise(),
        pool1=nn.MaxPool2d(3, 2),
        conv2=nn.Conv2d(a, b, 5, 1, 2, groups=groups),
        relu2=nn.ReLU(),
        norm2=normalise(),
        pool2=nn.MaxPool2d(3, 2),
        conv3=nn.Conv2d(b, c, 3, 1, 1),
        relu3=nn.ReLU(),
        conv4=nn.Conv2d(c, d, 3, 1, 1, groups=groups),
        relu4=nn.ReLU(),
        conv5=nn.Conv2d(d, e, 3, 1, 1, groups=groups),
        relu5=nn.ReLU(),
        pool5=nn.MaxPool2d(3, 2),
        flat=nn.Flatten(),
        drop6=nn.Dropout(dropout),
        fc6=nn.Linear(e * 6 * 6, 4096),
        relu6=nn.ReLU(),
        drop7=nn.Dropout(dropout),
        fc7=nn.Linear(4096, 4096),
        relu7=nn.ReLU(),
        fc8=nn.Linear(4096, classes),
    )
    left_out = ("norm1", "norm2") * (not norm) + ("drop6", "drop7") * (not dropout)
    return nn.Sequential(OrderedDict((name, layer) for name, layer in layers.items() if name not in left_out))
