import gzip
import re
import struct

import pytest
import torch

from d2lmini.data.idx import read_examples, read_idx

IMAGES = torch.arange(5 * 4 * 3, dtype=torch.uint8).reshape(5, 4, 3)
LABELS = torch.tensor([3, 0, 9, 9, 1], dtype=torch.uint8)


def idx(values, code=0x08):
    header = struct.pack(">BBBB", 0, 0, code, values.dim()) + struct.pack(f">{values.dim()}I", *values.shape)
    return header + bytes(values.flatten().tolist())


def write(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("values", [IMAGES, LABELS, LABELS[:1], LABELS[:0], IMAGES[:0]])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("name", ["plain", "packed.gz"])
def test_values_come_back_whatever_the_name(tmp_path, values, pack, name):
    result = read_idx(write(tmp_path / name, pack(idx(values))))
    assert result.dtype == torch.uint8
    assert result.shape == values.shape
    assert torch.equal(result, values)


def test_a_default_device_does_not_matter_and_the_result_is_writable(tmp_path):
    path = write(tmp_path / "x", idx(LABELS))
    with torch.device("meta"):
        result = read_idx(path)
    assert result.device.type == "cpu"
    result += 1
    assert torch.equal(read_idx(path), LABELS)


def corrupted(data):
    return data[:20] + bytes([data[20] ^ 0xFF]) + data[21:]


PLAIN, PACKED = idx(IMAGES), gzip.compress(idx(IMAGES), mtime=0)  # no date: the tests are named after it


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated: expected at least 4 bytes, got 0"),
        (b"\0\0\x08", "truncated: expected at least 4 bytes, got 3"),
        (PLAIN[:15], "truncated: expected a header of 16 bytes, got 15"),
        (PLAIN[:16], "truncated: expected 76 bytes for shape (5, 4, 3), got 16"),
        (PLAIN[:-1], "truncated: expected 76 bytes for shape (5, 4, 3), got 75"),
        (PLAIN + b"\0", "trailing bytes: expected 76 bytes for shape (5, 4, 3), got 77"),
        (idx(IMAGES[0]), "expected magic number 0x00000801 (labels) or 0x00000803 (images), got 0x00000802"),
        (b"<html>", "expected magic number 0x00000801 (labels) or 0x00000803 (images), got 0x3c68746d"),
        (b"\1" + PLAIN[1:], "got 0x01000803"),
        (idx(IMAGES, 0x0D), "expected values of type 0x08 (uint8), got 0x0d (float32)"),
        (idx(IMAGES, 0x07), "got 0x00000703"),
        (PLAIN[:4] + b"\xff" * 12, "truncated: expected 79228162458924105385300197391 bytes"),
        (PACKED[:2], "corrupted gzip file"),
        (PACKED[:-1], "corrupted gzip file"),
        (PACKED[: len(PACKED) // 2], "corrupted gzip file"),
        (corrupted(PACKED), "corrupted gzip file"),
        (PACKED[:-8] + b"\0" * 8, "corrupted gzip file"),
        (gzip.compress(PLAIN[:-1], mtime=0), "truncated: expected 76 bytes for shape (5, 4, 3), got 75"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, data, message):
    path = write(tmp_path / "bad.gz", data)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        read_idx(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None


def test_a_pair_becomes_examples(tmp_path):
    images, labels = read_examples(write(tmp_path / "i", idx(IMAGES)), write(tmp_path / "l", idx(LABELS)))
    assert torch.equal(images, IMAGES.reshape(5, 1, 4, 3))
    assert images.dtype == torch.uint8
    assert torch.equal(labels, torch.tensor([3, 0, 9, 9, 1]))
    assert labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES, LABELS[:-1], "i holds 5 images but {}l holds 4 labels"),
        (IMAGES, torch.tensor([0, 10, 3, 255, 1], dtype=torch.uint8), "l: expected labels 0 to 9, got 10 at index 1"),
        (LABELS, LABELS, "i: not the right IDX file: expected magic number 0x00000803 (images), got 0x00000801"),
        (IMAGES, IMAGES, "l: not the right IDX file: expected magic number 0x00000801 (labels), got 0x00000803"),
    ],
)
def test_files_that_do_not_belong_together_are_told(tmp_path, images, labels, message):
    paths = write(tmp_path / "i", idx(images)), write(tmp_path / "l", idx(labels))
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}/{message}".format(f"{tmp_path}/"))):
        read_examples(*paths)
