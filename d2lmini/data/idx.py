"""Reading IDX files, the format in which MNIST and Fashion-MNIST are published.

    offset  bytes  meaning
    0       4      magic number: 0, 0, type of a value (0x08 is uint8, the only one used here), number of dimensions D
    4       4·D    the dimensions, big-endian, slowest first
    4+4·D   …      the values, row by row

Source: http://yann.lecun.com/exdb/mnist/ (section "The IDX file format").
"""

import gzip
import math
import zlib

import numpy as np
import torch

from d2lmini.wording import printable

LARGEST = 1 << 30  # bytes of values: twenty times MNIST
PIECE = 1 << 20  # bytes that are read at a time
CLASSES = 10


def read_idx(path, ndim):
    """Return the values of one IDX file as a uint8 CPU tensor: images [N, H, W] or labels [N].

    Whether the file is gzipped is told from its content, not its name; no more is unpacked than its header announces.

    Args:
        path: The file.
        ndim: 3 for images, 1 for labels.

    Raises:
        ValueError: It is no such IDX file, is corrupted, or has fewer or more bytes than its header announces.
        OSError: It cannot be read.
    """
    name = printable(path)
    with open(path, "rb") as raw:
        file = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
        try:
            magic, header = file.read(4), file.read(4 * ndim)
            shape = _shape(name, magic, header, ndim)
            values = _filled(file, np.empty(math.prod(shape), np.uint8))
            more = file.read(1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{name}: corrupted gzip file ({error}); fetch it again") from None
    if more or len(values) < math.prod(shape):
        problem = "trailing bytes: got more" if more else f"truncated: got {len(values)}, less"
        raise ValueError(f"{name}: {problem} than the {math.prod(shape)} bytes of shape {shape}")
    return torch.from_numpy(values.reshape(shape))


def _filled(file, values):
    """Return as much of an array as a file fills, in pieces, so that what is unpacked lies in memory once."""
    for start in range(0, len(values), PIECE):
        data = file.read(min(PIECE, len(values) - start))
        memoryview(values)[start : start + len(data)] = data
        if len(data) < PIECE:
            return values[: start + len(data)]
    return values


def read_examples(images_path, labels_path):
    """Return images [N, 1, H, W] (uint8) and their labels [N] (int64) from a pair of IDX files.

    Raises:
        ValueError: The two files hold different counts, a label is above 9, or as `read_idx`.
    """
    images, labels = read_idx(images_path, ndim=3), read_idx(labels_path, ndim=1)
    images_path, labels_path = printable(images_path), printable(labels_path)
    if not images.numel():
        raise ValueError(f"{images_path}: holds no images: its shape is {tuple(images.shape)}")
    if len(images) != len(labels):
        raise ValueError(f"{images_path} holds {len(images)} images but {labels_path} holds {len(labels)} labels")
    for i in (labels >= CLASSES).nonzero()[:1].flatten().tolist():
        raise ValueError(f"{labels_path}: expected labels 0 to {CLASSES - 1}, got {int(labels[i])} at index {i}")
    return images.unsqueeze(1), labels.to(torch.int64)


def _shape(name, magic, header, ndim):
    if not magic:
        raise ValueError(f"{name}: is empty")
    right = bytes([0, 0, 8, ndim])
    if magic != right:
        raise ValueError(f"{name}: expected the magic number 0x{right.hex()} of an IDX file, got 0x{magic.hex()}")
    if len(header) < 4 * ndim:
        raise ValueError(f"{name}: truncated: expected {ndim} dimensions, got {len(header)} of their bytes")
    shape = tuple(np.frombuffer(header, ">u4").tolist())
    if math.prod(shape) > LARGEST:
        raise ValueError(f"{name}: expected at most {LARGEST} bytes, but the header announces shape {shape}")
    return shape
