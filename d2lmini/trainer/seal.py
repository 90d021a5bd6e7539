"""The seal of a checkpoint: what says at its end that nothing of it is missing or changed.

    archive that torch.save writes │ length of the comment │ title, CRC-32 of the archive
                                     (2 bytes, were 0)       the archive's comment, so that torch.load passes over it
"""

import os
import zlib

TITLE = b"d2lmini checkpoint 2 crc32="
COMMENT = len(TITLE) + 8  # bytes: the title and a CRC-32 in hex
CHUNK = 2**24


class Summed:
    """A file whose bytes are summed up while they are written."""

    def __init__(self, file):
        self.file, self.crc = file, 0

    def write(self, data):
        """Write bytes to the file."""
        self.crc = zlib.crc32(data, self.crc)
        return self.file.write(data)

    def flush(self):
        """Hand on what is buffered; torch calls this at the end."""
        self.file.flush()

    def seal(self):
        """Give the archive that was written its seal."""
        self.file.seek(-2, os.SEEK_END)
        self.file.write(_seal(self.crc))


def flaw(path):
    """Return what is wrong with a file, or None; raises OSError where it cannot be read."""
    seal = _found(path)
    if seal is None:
        return "is no checkpoint of the trainer, or its end is missing"
    crc, left = 0, os.path.getsize(path) - len(seal)
    with open(path, "rb") as file:
        while left:
            data = file.read(min(CHUNK, left))
            crc, left = zlib.crc32(data, crc), left - len(data)
    whole = seal == _seal(zlib.crc32(bytes(2), crc))
    return None if whole else "is damaged: its contents do not have the checksum that it names"


def is_sealed(path):
    """Return whether a file ends in a seal, whatever is before it."""
    return _found(path) is not None


def _seal(crc):
    return COMMENT.to_bytes(2, "little") + TITLE + b"%08x" % crc


def _found(path):
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - COMMENT - 2))
        seal = file.read()
    return seal if seal[2:].startswith(TITLE) else None
