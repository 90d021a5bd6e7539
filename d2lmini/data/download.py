"""Fetching one published file: from several mirrors, resumed where it broke off, and verified before it gets its name.

    final file right? ── yes ──────────────────────────────────────────────────────────────> done
      └─ no ─> lock ─> for each mirror: ask for what name.part lacks ─> checksum right? ─> rename to the final name

A lock file makes a second process wait, and then find the file. The operating system drops the lock when its holder
dies, so nothing stale is left to clean up.
"""

import hashlib
import os
import shutil
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from filelock import FileLock, Timeout
from tqdm import tqdm

TIMEOUT_SECONDS = 30  # without a byte from the server
LOCK_SECONDS = 600  # while another process downloads the same file
BLOCK_BYTES = 1 << 16
ADVICE = "or put the files in a folder and set D2LMINI_DATA to that folder"


class DownloadError(RuntimeError):
    """A file could not be fetched; its one line says which file, why, and what to do."""


class _MirrorFailed(Exception):
    """Why one mirror did not deliver; the next one is tried."""


def fetch(name, mirrors, sha256, size, folder):
    """Return the path of the file `name` in `folder`, downloading it if it is not there or not right.

    `mirrors`: addresses of folders that hold the file, tried in order. `sha256`: in hex; `size`: in bytes. What has
    arrived stays in ``name.part`` and is resumed by the next mirror or the next call. A file that is there and right is
    never written to; a wrong one is replaced once a right one has arrived.
    Raises DownloadError when no mirror delivers, the disk is full, or the folder can't be written.
    """
    folder = Path(folder)
    target = folder / name
    try:
        if not _verified(target, sha256, size):
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / f"{name}.lock", timeout=LOCK_SECONDS):
                if not _verified(target, sha256, size):  # another process may have fetched it meanwhile
                    _from_mirrors(target, mirrors, sha256, size)
    except Timeout:
        waited = f"another process has been downloading it to {folder} for {LOCK_SECONDS} s"
        raise DownloadError(f"{name}: {waited}; wait for that one, {ADVICE}") from None
    except OSError as error:
        reason = error.strerror or error
        raise DownloadError(f"{name}: can't be kept in {folder}: {reason}; make room or choose a folder "
                            f"that can be written (XDG_CACHE_HOME), {ADVICE}") from None
    return target


def _from_mirrors(target, mirrors, sha256, size):
    part = target.with_name(f"{target.name}.part")
    _check_space(part, size)
    reasons = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{target.name}"
        try:
            _complete(part, url, sha256, size)
            os.replace(part, target)
            return
        except _MirrorFailed as error:
            reasons.append(f"{url}: {error}")
    raise DownloadError(f"{target.name}: no mirror delivered it ({'; '.join(reasons)}); check the network and run this "
                        f"again, what has arrived is kept, {ADVICE}")


def _complete(part, url, sha256, size):
    """Return when `part` is the whole right file; the disk's failures pass as OSError, the others as _MirrorFailed."""
    offset = _length(part)
    if offset < size:
        offset = _receive(part, url, offset, size)
    if _verified(part, sha256, size):
        return
    part.unlink()
    if not offset:
        raise _MirrorFailed("sent other bytes than expected (checksum differs)")
    _complete(part, url, sha256, size)  # the bytes from before may be wrong, or the range: once more, from the start


def _receive(part, url, offset, size):
    """Append the file's bytes from `offset` on to `part`, or all if the server starts again; return where it began."""
    with _request(url, offset) as reply:
        offset = offset if reply.status == 206 else 0
        if reply.length not in (None, size - offset):  # a login page, say: it must not cost what is in `part`
            raise _MirrorFailed(f"offers {reply.length} bytes, expected {size - offset}")
        received, look = offset, {"unit": "B", "unit_scale": True, "desc": part.stem}
        with open(part, "ab" if offset else "wb") as out, tqdm(total=size, initial=offset, **look) as bar:
            while received <= size and (block := _read(reply)):
                out.write(block)
                received += len(block)
                bar.update(len(block))
    if received < size:
        raise _MirrorFailed(f"the connection ended after {received} of {size} bytes")
    return offset


def _request(url, offset):
    headers = {"User-Agent": "d2lmini"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    with _network():
        try:
            return urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
        except HTTPError as error:
            if not (offset and error.code == 416):
                raise
            error.close()
            return _request(url, 0)


def _read(reply):
    with _network():
        return reply.read1(BLOCK_BYTES)


@contextmanager
def _network():
    """Tell failures of the network, which the next mirror may cure, from those of the disk."""
    try:
        yield
    except HTTPError as error:
        error.close()
        raise _MirrorFailed(f"HTTP {error.code} {error.reason}") from None
    except URLError as error:
        raise _MirrorFailed(str(error.reason)) from None
    except (OSError, HTTPException) as error:
        raise _MirrorFailed(str(error) or type(error).__name__) from None


def _check_space(part, size):
    needed, free = size - _length(part), shutil.disk_usage(part.parent).free
    if free < needed:
        raise DownloadError(f"{part.stem}: {needed} bytes are still to come but {part.parent} has {free} bytes free; "
                            f"make room, {ADVICE}")


def _length(path):
    return path.stat().st_size if path.exists() else 0


def _verified(path, sha256, size):
    if not path.is_file() or path.stat().st_size != size:
        return False
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == sha256
