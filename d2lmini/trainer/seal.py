"""The seal of a checkpoint: what says at its end that nothing of it is missing or changed.

    archive that torch.save writes │ length of the comment │ title, CRC-32 of the archive
                                     (2 bytes, were 0)       the archive's comment, so that torch.load passes over it

The archive has checksums of its own, which torch.load does not compare, and which do not cover its directory.
"""

import os
import zlib

TITLE = b"d2lmini checkpoint 2 crc32="
COMMENT = len(TITLE) + 8  # bytes: the title and a CRC-32 in hex
CHUNK = 2**24


def put(file):
    """Seal the archive that lies in a binary file, open for reading too."""
    size = file.seek(-2, os.SEEK_END)
    seal = _of(file, size)
    file.seek(size)
    file.write(seal)


def flaw(path):
    """Return what is wrong with a file, or None; raises OSError where it cannot be read."""
    with open(path, "rb") as file:
        size, seal = _found(file)
        if not seal:
            return "is no checkpoint of the trainer, or its end is missing"
        return None if seal == _of(file, size) else "is damaged: its contents do not have the checksum that it names"


def is_sealed(path):
    """Return whether a file ends in a seal, whatever is before it."""
    with open(path, "rb") as file:
        return bool(_found(file)[1])


def _of(file, size):
    """Return the seal for the first `size` bytes of a file."""
    crc, left = 0, size
    file.seek(0)
    while left:
        data = file.read(min(CHUNK, left))
        crc, left = zlib.crc32(data, crc), left - len(data)
    return COMMENT.to_bytes(2, "little") + TITLE + b"%08x" % zlib.crc32(bytes(2), crc)


def _found(file):
    """Return where the seal of a file begins, and the seal; b"" where there is none."""
    size = file.seek(max(0, file.seek(0, os.SEEK_END) - COMMENT - 2))
    seal = file.read()
    return size, seal if seal[2:].startswith(TITLE) else b""
