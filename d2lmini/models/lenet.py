"""Networks, as bare parameters and as modules: LeNet, and two smaller ones for comparison.

LeNet here is the variant of the multi-GPU literature for 28×28 grey images (after LeCun et al. 1998, with ReLU and
average pooling): two convolutions, each with a pool, and two dense layers; 129,068 parameters in eight tensors.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

LENET_SHAPES = ((20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,))


def he(fan_in):
    """Return the standard deviation that keeps activations' variance through ReLU layers (He et al. 2015, eq. 10)."""
    return math.sqrt(2 / fan_in)


def lenet_params(std=he, seed=0):
    """Return LeNet's eight parameters on the CPU, float32: weights and biases W1, b1, … W4, b4 of `LENET_SHAPES`.

    Weights are normal with standard deviation ``std(fan_in)``, biases zero. The fan-in of an output is the number of
    inputs it sums: channels × kernel area of a convolution, rows of a dense weight. One seed, one set of numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    params = []
    for shape in LENET_SHAPES:
        if len(shape) == 1:
            params.append(torch.zeros(shape))
        else:
            fan_in = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
            params.append(torch.randn(shape, generator=generator) * std(fan_in))
    return params


def lenet(X, params):
    """Return the logits [n, 10] of images X [n, 1, 28, 28]."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h1 = F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), 2)  # [n, 20, 13, 13]
    h2 = F.avg_pool2d(F.relu(F.conv2d(h1, W2, b2)), 2)  # [n, 50, 4, 4]
    h3 = F.relu(h2.flatten(1) @ W3 + b3)  # [n, 128]
    return h3 @ W4 + b4  # [n, 10]


class LeNet(nn.Module):
    """The same network as a module, with the same initialisation."""

    def __init__(self, std=he, seed=0):
        """Take the parameters of ``lenet_params(std, seed)``; dense weights are stored transposed, [out, in]."""
        super().__init__()
        W1, b1, W2, b2, W3, b3, W4, b4 = lenet_params(std, seed)
        self.net = nn.Sequential(
            nn.Conv2d(1, 20, 3),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(20, 50, 5),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(800, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )
        with torch.no_grad():
            for mine, given in zip(self.parameters(), (W1, b1, W2, b2, W3.T, b3, W4.T, b4), strict=True):
                mine.copy_(given)

    def forward(self, X):
        """Return the logits [n, 10] of images X [n, 1, 28, 28]."""
        return self.net(_images(X))


def _images(X):
    """Return X.

    Raises:
        ValueError: Unless it is images [n, 1, 28, 28]: 56×14 would pass for as many pixels.
    """
    if tuple(X.shape[1:]) != (1, 28, 28):
        raise ValueError(f"expected images [n, 1, 28, 28], got {list(X.shape)}")
    return X


class Flatten(nn.Flatten):
    """Makes rows [n, 784] of images [n, 1, 28, 28]; raises ValueError for other shapes."""

    def forward(self, X):
        """Return the rows."""
        return super().forward(_images(X))


def mlp(seed=0):
    """Return a network with one hidden layer of 128, for images [n, 1, 28, 28]: 101,770 parameters."""
    return _seeded(seed, lambda: [nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)])


def softmax_regression(seed=0):
    """Return a linear network for images [n, 1, 28, 28]: 7,850 parameters."""
    return _seeded(seed, lambda: [nn.Linear(784, 10)])


def _seeded(seed, layers):
    """Return the layers behind one another, with torch's initialisation from `seed`; other random numbers stay."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return nn.Sequential(Flatten(), *layers())


MODELS = {"lenet": LeNet, "mlp": mlp, "softmax": softmax_regression}  # name -> a function of the seed
