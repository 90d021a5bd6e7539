"""Files that are there whole or as they were before, whatever goes wrong while they are written.

    bytes ──► .NAME.unfinished, on the disk ──► takes the place of NAME

A symbolic link is followed, so that the file it leads to is replaced and not the link.
"""

import json
import os
import stat
from contextlib import contextmanager, suppress
from errno import EACCES, EISDIR, ENOENT, ENXIO
from pathlib import Path

from d2lmini.wording import printable

NEW = "unfinished"  # longer than any other word, so that a name too long for one is known before


def real(path) -> Path:
    """Return the path of the file that `path` leads to."""
    return Path(os.path.realpath(path))


def hidden_beside(path: Path, word: str) -> Path:
    """Return the name beside `path` of a file that serves it for a while."""
    return path.with_name(f".{path.name}.{word}")


def is_special(path) -> bool:
    """Return whether `path` is a device, a pipe, or where this process prints: written to, never replaced.

    Raises:
        OSError: Where the way to it is a circle.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not stat.S_ISREG(found.st_mode) or any(os.path.samestat(found, stream) for stream in _streams())


def _streams():
    for number in (1, 2):
        with suppress(OSError):  # it may be closed
            yield os.fstat(number)


def check(path, room: int = 0) -> None:
    """Raise OSError unless a file of `room` bytes can be written at `path`."""
    target = real(path)
    if os.path.isdir(path):
        raise OSError(EISDIR, "is a folder, expected a file")
    if Path(path).is_socket():
        raise OSError(ENXIO, "is a socket, expected a file")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise OSError(EACCES, "permission denied")
    if is_special(path):
        if Path(path).is_char_device():
            with open(path, "ab", buffering=0) as device:
                if room and not device.isatty():
                    device.write(b"\n")  # which JSON may begin with
        return
    if not target.parent.is_dir():
        raise OSError(ENOENT, f"there is no folder {printable(target.parent)}")
    with _new(target) as file:  # tried: root is told that it may write everywhere, a name may be too long, a disk full
        file.write(bytes(room))
        file.flush()


@contextmanager
def _new(path):
    """Open a new binary file beside `path`, for this block alone."""
    fresh = hidden_beside(path, NEW)
    fresh.unlink(missing_ok=True)  # by a run that was killed
    try:
        with open(fresh, "x+b") as file:
            yield file
    finally:
        fresh.unlink(missing_ok=True)  # where it has not taken the place


@contextmanager
def replacing(path, before=lambda: None):
    """Open a binary file that takes the place of `path` when the block ends, and has its mode; not after an error.

    Args:
        path: the file; its folder must be there.
        before: called when the new file is whole on the disk, and has not taken the place yet.

    Raises:
        OSError: with the file's name.
    """
    path = real(path)
    try:
        with _new(path) as file:
            if path.exists():
                os.chmod(file.name, stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            before()
            os.replace(file.name, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def write_json(path, values) -> None:
    """Write plain values and paths as JSON.

    Raises:
        ValueError: for nan and infinity, before anything is written.
        OSError: with the file's name.
    """
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False, default=os.fspath) + "\n"
    data = text.encode("utf-8", "backslashreplace")
    if not is_special(path):
        with replacing(path) as file:
            file.write(data)
        return
    try:
        with open(path, "ab") as file:  # to the end, where it is a file that a shell has opened
            file.write(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
