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


class Summed:
    """A binary file for an archive to be written to, which sums up what passes: it need not be read again."""

    def __init__(self, file):
        """Begin at the start of an empty file."""
        self.file, self.flush, self.crc = file, file.flush, 0

    def write(self, data):
        """Write on, and sum; torch.save asks for this and for `flush`."""
        self.crc = zlib.crc32(data, self.crc)
        return self.file.write(data)

    def seal(self):
        """Put the seal in place of the two zeros that end the archive."""
        self.file.seek(-2, os.SEEK_END)
        self.file.write(_with(self.crc))


def flaw(path):
    """Return why a file is no whole checkpoint, or None."""
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        return "is no regular file, but a directory, a pipe or a device"
    try:
        with open(path, "rb") as file:
            size, seal = _found(file)
            if not seal:
                return f"is no checkpoint of the trainer, or its end is missing, after {file.tell():,} bytes"
            return None if seal == _of(file, size) else "is damaged: its contents have another checksum than it names"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def is_sealed(path):
    """Return whether a file ends in a seal, whatever is before it."""
    with open(path, "rb") as file:
        return bool(_found(file)[1])


def _of(file, size):
    """Return the seal for the first `size` bytes of a file and the two zeros that followed them."""
    crc = file.seek(0)
    for at in range(0, size, CHUNK):
        crc = zlib.crc32(file.read(min(CHUNK, size - at)), crc)
    return _with(zlib.crc32(bytes(2), crc))


def _with(crc):
    return COMMENT.to_bytes(2, "little") + TITLE + b"%08x" % crc


def _found(file):
    """Return where the seal of a file begins, and the seal; b"" where there is none."""
    size = file.seek(max(0, file.seek(0, os.SEEK_END) - COMMENT - 2))
    seal = file.read()
    return size, seal if seal[2:].startswith(TITLE) else b""
