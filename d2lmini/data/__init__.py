"""Data sets and their mini-batches.

datasets     digits, MNIST, Fashion-MNIST as Batches
 ├── download    fetches a file once, checked, from the first mirror that has it
 └── idx         reads the files' format
"""

from d2lmini.data.datasets import (
    FASHION_MNIST_LABELS,
    Batches,
    load_data_digits,
    load_data_fashion_mnist,
    load_data_mnist,
)

__all__ = ["FASHION_MNIST_LABELS", "Batches", "load_data_digits", "load_data_fashion_mnist", "load_data_mnist"]
