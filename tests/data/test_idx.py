import gzip
import struct
import tracemalloc

import pytest
import torch
from served import idx

from d2lmini.data.idx import read_examples, read_idx

IMAGES = torch.arange(5 * 4 * 3, dtype=torch.uint8).reshape(5, 4, 3)
LABELS = torch.tensor([3, 0, 9, 9, 1], dtype=torch.uint8)


def write(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("values", [IMAGES, LABELS, LABELS[:1], LABELS[:0], IMAGES[:0]])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("name", ["plain", "packed.gz"])
def test_values_come_back_whatever_the_name(tmp_path, values, pack, name):
    result = read_idx(write(tmp_path / name, pack(idx(values))), values.dim())
    assert result.dtype == torch.uint8
    assert result.shape == values.shape
    assert torch.equal(result, values)


def test_a_default_device_does_not_matter_and_the_result_is_writable(tmp_path):
    path = write(tmp_path / "x", idx(LABELS))
    with torch.device("meta"):
        result = read_idx(path, 1)
    assert result.device.type == "cpu"
    result += 1
    assert torch.equal(read_idx(path, 1), LABELS)


PLAIN, PACKED = idx(IMAGES), gzip.compress(idx(IMAGES), mtime=0)  # no date: the tests are named after it


@pytest.mark.parametrize(
    ("data", "keyword"),
    [
        (b"", "is empty"),
        (idx(IMAGES[0]), "0x00000802"),
        (idx(IMAGES, 0x0D), "0x00000d03"),
        (b"\1" + PLAIN[1:], "0x01000803"),
        (PLAIN[:15], "truncated"),
        (PLAIN[:16], "truncated"),
        (PLAIN[:-1], "truncated"),
        (PLAIN + b"\0", "trailing"),
        (PLAIN[:4] + b"\xff" * 12, "at most"),
        (PACKED[:2], "corrupted"),
        (PACKED[: len(PACKED) // 2], "corrupted"),
        (PACKED[:20] + bytes([PACKED[20] ^ 0xFF]) + PACKED[21:], "corrupted"),
        (PACKED[:-8] + b"\0" * 8, "corrupted"),
        (gzip.compress(PLAIN[:-1], mtime=0), "truncated"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, data, keyword):
    path = write(tmp_path / "bad.gz", data)
    with pytest.raises(ValueError, match=keyword) as error:
        read_idx(path, 3)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_no_more_is_unpacked_than_the_header_announces(tmp_path):
    path = write(tmp_path / "bomb.gz", gzip.compress(PLAIN + bytes(1 << 25), compresslevel=1, mtime=0))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="trailing"):
            read_idx(path, 3)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_what_is_unpacked_lies_in_memory_once(tmp_path):
    size = 1 << 24
    plain = PLAIN[:4] + struct.pack(">3I", size, 1, 1) + bytes(size)
    path = write(tmp_path / "zeros.gz", gzip.compress(plain, 1))
    tracemalloc.start()
    try:
        assert read_idx(path, 3).shape == (size, 1, 1)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("images", "labels", "keyword"),
    [
        (IMAGES, LABELS[:-1], "4 labels"),
        (IMAGES, torch.tensor([0, 10, 3, 255, 1], dtype=torch.uint8), "index 1"),
        (LABELS, LABELS, "0x00000803"),
        (IMAGES, IMAGES, "0x00000801"),
        (IMAGES[:0], LABELS[:0], "i: holds no images"),
    ],
)
def test_files_that_do_not_belong_together_are_told(tmp_path, images, labels, keyword):
    with pytest.raises(ValueError, match=keyword):
        read_examples(write(tmp_path / "i", idx(images)), write(tmp_path / "l", idx(labels)))
