"""The networks that the chapters train or count; `benchmarks/networks.py` has more to judge the clock by.

lenet (with mlp and softmax_regression)    alexnet    resnet    residual
transformer ──▶ gpt2    llama
"""

from d2lmini.models.alexnet import WIDTHS_2014, alexnet
from d2lmini.models.gpt2 import GPT2
from d2lmini.models.lenet import MODELS, LeNet, he, lenet, lenet_params, mlp, softmax_regression
from d2lmini.models.llama import Llama
from d2lmini.models.residual import Residual
from d2lmini.models.resnet import resnet50

__all__ = [
    "GPT2",
    "MODELS",
    "WIDTHS_2014",
    "LeNet",
    "Llama",
    "Residual",
    "alexnet",
    "he",
    "lenet",
    "lenet_params",
    "mlp",
    "resnet50",
    "softmax_regression",
]
