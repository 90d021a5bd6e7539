"""Reading IDX files, the format in which MNIST and Fashion-MNIST are published.

    offset  bytes  meaning
    0       2      zero
    2       1      type of a value: 0x08 is uint8, the only one these data sets use
    3       1      number of dimensions D
    4       4·D    the dimensions, big-endian, slowest first
    4+4·D   …      the values, row by row

Source: http://yann.lecun.com/exdb/mnist/ (section "The IDX file format").
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch

KINDS = {3: "images", 1: "labels"}  # by number of dimensions
UINT8 = 0x08
TYPES = {0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}  # those not read here
CLASSES = 10


def read_idx(path, ndim=None):
    """Return the values of one IDX file: a uint8 CPU tensor, images [N, H, W] or labels [N].

    Whether the file is gzipped is told from its content, not its name. `ndim`: 3 accepts images only, 1 labels only.
    Raises ValueError, naming the file, when it is neither gzip nor IDX, a corrupted gzip file, of another type than
    uint8, or has fewer or more bytes than its header announces; OSError when it can't be read.
    """
    data = _unpacked(path)
    _check_magic(path, data[:4], [ndim] if ndim else sorted(KINDS))
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise ValueError(f"{path}: truncated: expected a header of {start} bytes, got {len(data)}")
    shape = struct.unpack(f">{data[3]}I", data[4:start])
    expected = start + math.prod(shape)
    if len(data) != expected:
        problem = "truncated" if len(data) < expected else "trailing bytes"
        raise ValueError(f"{path}: {problem}: expected {expected} bytes for shape {shape}, got {len(data)}")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)[start:].reshape(shape)


def read_examples(images_path, labels_path):
    """Return images [N, 1, H, W] (uint8) and their labels [N] (int64) from a pair of IDX files.

    Raises ValueError when the two files hold different counts, or a label is above 9, and as `read_idx` does.
    """
    images, labels = read_idx(images_path, ndim=3), read_idx(labels_path, ndim=1)
    if len(images) != len(labels):
        raise ValueError(f"{images_path} holds {len(images)} images but {labels_path} holds {len(labels)} labels")
    wrong = (labels >= CLASSES).nonzero()
    if len(wrong):
        i = int(wrong[0])
        raise ValueError(f"{labels_path}: expected labels 0 to {CLASSES - 1}, got {int(labels[i])} at index {i}")
    return images.unsqueeze(1), labels.to(torch.int64)


def _unpacked(path):
    data = Path(path).read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: corrupted gzip file ({error}); fetch it again") from None


def _check_magic(path, magic, dims):
    if len(magic) < 4:
        raise ValueError(f"{path}: truncated: expected at least 4 bytes, got {len(magic)}")
    if magic[:2] == b"\0\0" and magic[2] in TYPES:
        got = f"0x{magic[2]:02x} ({TYPES[magic[2]]})"
        raise ValueError(f"{path}: expected values of type 0x{UINT8:02x} (uint8), got {got}")
    allowed = {bytes([0, 0, UINT8, d]): KINDS[d] for d in dims}
    if magic not in allowed:
        expected = " or ".join(f"0x{number.hex()} ({kind})" for number, kind in allowed.items())
        raise ValueError(f"{path}: not the right IDX file: expected magic number {expected}, got 0x{magic.hex()}")
