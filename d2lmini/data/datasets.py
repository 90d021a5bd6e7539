"""Data sets that fit in memory, and iterators that make their batches on the device where the data lives.

files or scikit-learn ─> uint8 images [N, 1, H, W], int64 labels [N] ─> (resized once) ─> Batches ─> (X, y)
"""

import copy
import hashlib
import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import interpolate

from d2lmini.data.download import fetch
from d2lmini.data.idx import read_examples
from d2lmini.wording import printable

FASHION_MNIST_LABELS = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
DIGITS_FOR_TRAINING = 1500
DIGITS_PEAK = 16  # the largest value of a pixel in scikit-learn's digits
IDX_SIZE = [28, 28]  # pixels of an image of either data set
RESIZE_CHUNK = 256  # images resized at a time: bounds the float64 copies


class IdxFiles(NamedTuple):
    """A data set published as four IDX files: training images, their labels, test images, their labels."""

    name: str  # of its folder in the cache and in D2LMINI_DATA
    mirrors: tuple  # addresses of folders with the files, tried in order
    files: dict  # each file's name -> (sha256 in hex, size in bytes)


MNIST = IdxFiles(
    "mnist",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    {
        "train-images-idx3-ubyte.gz": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        "train-labels-idx1-ubyte.gz": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        "t10k-images-idx3-ubyte.gz": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        "t10k-labels-idx1-ubyte.gz": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    },
)

FASHION_MNIST = IdxFiles(
    "fashion_mnist",
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    {
        "train-images-idx3-ubyte.gz": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        "train-labels-idx1-ubyte.gz": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        "t10k-images-idx3-ubyte.gz": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        "t10k-labels-idx1-ubyte.gz": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    },
)


class Batches:
    """An iterator over a data set in memory: yields X float32 [B, 1, H, W] in [0, 1] and y int64 [B].

    Batches are made on the device where the images are; see `to`. The last one is short when the batch size does not
    divide N. `epoch` counts the epochs begun; set it to repeat or to resume one.

    Args:
        images: uint8 [N, 1, H, W].
        labels: Integers [N].
        batch_size: B.
        shuffle: Whether each epoch has a new order, drawn from `seed` and the epoch's number alone: the same on every
            device, and torch's global generator is left alone.
        seed: Of the orders.

    Raises:
        ValueError: A batch size that is no positive int, images that are not uint8 or not 4-dimensional, labels that
            are no integers or not as many as the images, or an empty data set.
    """

    def __init__(self, images, labels, batch_size, shuffle=False, seed=0):
        _check_sizes(batch_size=batch_size)
        _check_examples(images, labels)
        self.images, self.labels = images.contiguous(), labels.to(torch.int64).contiguous()
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.epoch = 0

    @property
    def num_examples(self):
        """How many examples the data set has."""
        return len(self.images)

    def __len__(self):
        return -(-self.num_examples // self.batch_size)

    def __iter__(self):
        """Begin an epoch and return its batches; also ``next(iter(batches))`` begins one."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._batches(_order(self.num_examples, self.seed, epoch) if self.shuffle else None)

    def to(self, device):
        """Return the same iterator, at the same epoch, over a copy of the data on `device`."""
        moved = copy.copy(self)
        moved.images, moved.labels = self.images.to(device), self.labels.to(device)
        return moved

    def _batches(self, order):
        """Yield the batches in an order of the examples; None: as they lie, which needs no copy of the bytes."""
        # y is the caller's to write into: one copy of the labels an epoch takes less time than one a batch.
        if order is None:
            parts, labels = self.images.split(self.batch_size), self.labels.clone()
        else:
            order = order.to(self.images.device)
            labels = self.labels.index_select(0, order)
            parts = (self.images.index_select(0, part) for part in order.split(self.batch_size))
        for images, y in zip(parts, labels.split(self.batch_size), strict=True):
            yield images.to(torch.float32).div_(255), y


def load_data_digits(batch_size, resize=28, seed=0):
    """Return (train_iter, test_iter) over 1,797 real handwritten digits, of which the first 1,500 are for training.

    They come with scikit-learn, so that nothing is downloaded: 8×8 images with values 0 to 16, scaled to 0 to 255.

    Args:
        batch_size: Examples in a batch.
        resize: Pixels of an edge, enlarged bilinearly; None for 8.
        seed: Of the order of training examples.

    Raises:
        ValueError: A batch size or `resize` that is no positive int.
        ModuleNotFoundError: scikit-learn is missing.

    Source: "Optical Recognition of Handwritten Digits" of the UCI repository (Alpaydin and Kaynak 1998), test part.
    """
    resize = 8 if resize is None else resize
    _check_sizes(batch_size=batch_size, resize=resize)
    found = find_spec("sklearn")  # its file is read, and the package not imported, which takes seconds
    if found is None:
        raise ModuleNotFoundError("the digits come with scikit-learn: pip install scikit-learn")
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    digits = torch.from_numpy(np.loadtxt(file, np.uint8, delimiter=","))  # 64 pixels and the label a line
    images, labels = _resized(digits[:, :64].reshape(-1, 1, 8, 8), resize, peak=DIGITS_PEAK), digits[:, 64].long()
    n = DIGITS_FOR_TRAINING
    return _iterators((images[:n], labels[:n]), (images[n:], labels[n:]), batch_size, seed)


def load_data_mnist(batch_size, resize=None, seed=0):
    """Return (train_iter, test_iter) over MNIST: 60,000 and 10,000 images [1, 28, 28], or [1, resize, resize].

    The folder that the environment variable D2LMINI_DATA names, or its subfolder ``mnist``, has the four IDX files,
    gzipped or unpacked, and is only read. Without it they are downloaded once to the cache folder,
    ``$XDG_CACHE_HOME/d2lmini/mnist`` (``~/.cache/d2lmini/mnist``).

    Args:
        batch_size: Examples in a batch.
        resize: Pixels of an edge; None for 28.
        seed: Of the order of training examples.

    Raises:
        ValueError: Bad arguments or files (see `d2lmini.data.idx`).
        FileNotFoundError: The folder lacks a file.
        DownloadError: A download fails.

    Source: LeCun, Cortes and Burges.
    """
    return _load_idx(MNIST, batch_size, resize, seed)


def load_data_fashion_mnist(batch_size, resize=None, seed=0):
    """Return (train_iter, test_iter) over Fashion-MNIST: 60,000 and 10,000 images of clothes, like `load_data_mnist`.

    Its subfolder is ``fashion_mnist``: the four files have the same names as MNIST's. `FASHION_MNIST_LABELS` names the
    classes.

    Source: Xiao, Rasul and Vollgraf 2017.
    """
    return _load_idx(FASHION_MNIST, batch_size, resize, seed)


def _load_idx(dataset, batch_size, resize, seed):
    _check_sizes(batch_size=batch_size, resize=1 if resize is None else resize)
    files = _files(dataset)
    train, test = read_examples(*files[:2]), read_examples(*files[2:])
    for file, (images, _) in zip(files[::2], (train, test), strict=True):
        if list(images.shape[2:]) != IDX_SIZE:
            raise ValueError(
                f"{printable(file)}: expected images of 28×28 pixels, got {images.shape[2]}×{images.shape[3]}"
            )
    if resize is not None:
        train, test = ((_resized(images, resize), labels) for images, labels in (train, test))
    return _iterators(train, test, batch_size, seed)


def _iterators(train, test, batch_size, seed):
    return Batches(*train, batch_size, shuffle=True, seed=seed), Batches(*test, batch_size)


def _files(dataset):
    """Return the paths of the four files: the reader's folder if there is one, else the cache."""
    given = os.environ.get("D2LMINI_DATA")
    if not given:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "d2lmini" / dataset.name
        return [fetch(name, dataset.mirrors, *facts, cache) for name, facts in dataset.files.items()]
    folder = Path(given).expanduser()
    folder = folder / dataset.name if (folder / dataset.name).is_dir() else folder
    either = [(folder / name.removesuffix(".gz"), folder / name) for name in dataset.files]
    paths = [next((path for path in both if path.is_file()), None) for both in either]
    missing = [name for name, path in zip(dataset.files, paths, strict=True) if path is None]
    if missing:
        raise FileNotFoundError(
            f"{printable(folder)}: expected {', '.join(missing)} (gzipped or unpacked) in this folder"
        )
    return paths


def _resized(images, size, peak=255):
    """Return images [N, 1, H, W] with values 0 to `peak` as uint8 [N, 1, size, size] with values 0 to 255."""
    result = torch.empty(len(images), 1, size, size, dtype=torch.uint8, device=images.device)
    for chunk, out in zip(images.split(RESIZE_CHUNK), result.split(RESIZE_CHUNK), strict=True):
        values = interpolate(chunk.double(), size=(size, size), mode="bilinear", antialias=True) * (255 / peak)
        # An exact half must round alike on every processor, whatever the last bit of its sum: hence the nudge.
        out.copy_((values + 1e-6).round())
    return result


def _order(n, seed, epoch):
    # Hashed, because seed + epoch would give seed 0 the orders of seed 1, one epoch later.
    mixed = int.from_bytes(hashlib.sha256(f"{seed} {epoch}".encode()).digest()[:4], "big")
    return torch.randperm(n, generator=torch.Generator("cpu").manual_seed(mixed), device="cpu")


def _check_sizes(**sizes):
    """Raise ValueError for one that is no positive int, before anything is read or downloaded."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}: expected a positive int, got {value!r}")


def _check_examples(images, labels):
    if not (isinstance(images, torch.Tensor) and isinstance(labels, torch.Tensor)):
        raise ValueError(f"expected tensors, got images {type(images).__name__}, labels {type(labels).__name__}")
    if images.dtype != torch.uint8 or images.dim() != 4:
        raise ValueError(f"images: expected uint8 [N, 1, H, W], got {images.dtype} {list(images.shape)}")
    if labels.dim() != 1 or labels.is_floating_point():
        raise ValueError(f"labels: expected int64 [N], got {labels.dtype} {list(labels.shape)}")
    if not len(images) == len(labels) > 0:
        raise ValueError(f"expected a label for each image, at least one, got {len(images)} and {len(labels)} labels")
