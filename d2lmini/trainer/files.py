"""Files that are there whole or as they were before, whatever goes wrong while they are written.

    bytes ──► .NAME.d2lmini-…, on the disk ──► takes the place of NAME

A symbolic link is followed, so that the file it leads to is replaced and not the link. Of the files beside it only
those are touched whose names nobody else gives.
"""

import glob
import json
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from errno import EACCES, EISDIR, ENOENT, ENXIO
from pathlib import Path

OURS = ".{}.d2lmini-{}"  # how a file is named that serves another for a while


def real(path):
    """Return the path of the file that `path` leads to."""
    return Path(os.path.realpath(path))


def hidden_beside(path, word=None):
    """Return a name beside `path` that is ours alone, without a word one that is new."""
    return path.with_name(OURS.format(path.name, word or secrets.token_hex(4)))


def is_special(path):
    """Return whether `path` is a device, a pipe, or open here as a stream is: written to, never replaced.

    Raises OSError where the way to it is a circle.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not stat.S_ISREG(found.st_mode) or any(os.path.samestat(found, other) for other in _open())


def _open():
    """Yield what the system says of each file that is open in this process."""
    for number in os.listdir("/dev/fd"):
        with suppress(OSError):  # that of the list itself is closed by now
            yield os.fstat(int(number))


def check(path):
    """Raise OSError unless a file can be written at `path`."""
    special, target = is_special(path), real(path)
    if os.path.isdir(path):
        raise OSError(EISDIR, "is a folder, expected a file")
    if Path(path).is_socket():
        raise OSError(ENXIO, "is a socket, expected a file")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise OSError(EACCES, "permission denied")
    if not special:
        if not target.parent.is_dir():
            raise OSError(ENOENT, f"there is no folder {target.parent}")
        fresh = hidden_beside(target)  # tried, as root is told that it may write everywhere, and a name may be too long
        fresh.touch()
        fresh.unlink(missing_ok=True)


@contextmanager
def replacing(path, before=lambda: None):
    """Open a binary file that takes the place of `path` when the block ends, and has its mode; not after an error.

    before: called when the new file is whole on the disk, and has not taken the place yet.
    """
    path = real(path)
    for left in path.parent.glob(glob.escape(OURS.format(path.name, "")) + "[0-9a-f]" * 8):
        left.unlink(missing_ok=True)  # by a run that was killed
    fresh = hidden_beside(path)
    try:
        with open(fresh, "x+b") as file:
            if path.exists():
                os.chmod(fresh, stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        before()
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)  # where it has not taken the place
    folder = os.open(path.parent, os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the new entry too
    finally:
        os.close(folder)


def write_json(path, values):
    """Write plain values and paths as JSON. Raises ValueError for nan and infinity, before anything is written."""
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False, default=os.fspath) + "\n"
    data = text.encode("utf-8", "backslashreplace")
    if is_special(path):
        with open(path, "ab") as file:  # to the end, where it is a file that a shell has opened
            file.write(data)
    else:
        with replacing(path) as file:
            file.write(data)
