"""The networks that the chapters train.

    lenet (with mlp and softmax_regression)    alexnet    resnet
"""

from d2lmini.models.alexnet import WIDTHS_2014, alexnet
from d2lmini.models.lenet import MODELS, LeNet, he, lenet, lenet_params, mlp, softmax_regression
from d2lmini.models.resnet import resnet50, resnet56

__all__ = [
    "MODELS", "WIDTHS_2014", "LeNet", "alexnet", "he", "lenet", "lenet_params", "mlp", "resnet50", "resnet56",
    "softmax_regression",
]  # fmt: skip
