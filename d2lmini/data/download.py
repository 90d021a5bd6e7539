"""Fetching one published file, from the first mirror that delivers it, checked before it gets its name.

The loop is our own because `torch.hub.download_url_to_file` waits for ever for a server that stops sending, and writes
as much as one that does not stop sends.
"""

import hashlib
import os
import time
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

from filelock import FileLock
from tqdm import tqdm

from d2lmini.timing import within
from d2lmini.wording import printable

LIMIT_SECONDS = 900  # for one mirror: 26 MB at 30 kB/s
SILENCE_SECONDS = 30  # without a byte
BLOCK_BYTES = 1 << 16
ADVICE = "or put the files in a folder and set D2LMINI_DATA to that folder"


class DownloadError(RuntimeError):
    """A file could not be fetched; its one line says which file, why, and what to do."""


def fetch(name, mirrors, sha256, size, folder, limit=LIMIT_SECONDS):
    """Return the path of a file in a folder, downloading it if it is not there or not right.

    A second process waits for the first. A wrong file stays until a right one has arrived.

    Args:
        name: The file's name.
        mirrors: Addresses of folders that hold it, tried in order.
        sha256: In hex.
        size: In bytes.
        folder: Where it is kept.
        limit: Seconds that each mirror gets.

    Raises:
        DownloadError: No mirror delivers, the disk is full, or the folder cannot be written.
    """
    target, part = Path(folder, name), Path(folder, f"{name}.part")
    try:
        if not _right(target, sha256):
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{target}.lock", timeout=limit * len(mirrors)):  # dropped by the system if its holder dies
                if not _right(target, sha256):
                    try:
                        part.write_bytes(_from_mirrors(name, mirrors, sha256, size, limit))
                        os.replace(part, target)
                    finally:
                        part.unlink(missing_ok=True)
    except OSError as error:
        raise DownloadError(
            f"{name}: can't be kept in {printable(folder)}: {error.strerror or error}; make room or choose a "
            f"folder that can be written (XDG_CACHE_HOME), {ADVICE}"
        ) from None
    return target


def _from_mirrors(name, mirrors, sha256, size, limit):
    reasons = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{name}"
        try:
            return within(limit, _receive, url, sha256, size, time.monotonic() + limit)
        except (OSError, HTTPException, ValueError) as error:  # HTTPError, URLError; a redirect to what is no address
            reasons.append(f"{url}: {error or type(error).__name__}")
    raise DownloadError(
        f"{name}: no mirror delivered it ({'; '.join(reasons)}); check the network and run this again, {ADVICE}"
    )


def _receive(url, sha256, size, deadline):
    """Return what `url` sends; raise OSError or HTTPException when that fails, takes too long, or is not the file."""
    data = bytearray()
    with (
        urlopen(Request(url, headers={"User-Agent": "d2lmini"}), timeout=SILENCE_SECONDS) as reply,
        tqdm(total=size, unit="B", unit_scale=True, desc=url.rpartition("/")[2]) as bar,
    ):
        while len(data) <= size and (block := reply.read1(BLOCK_BYTES)):
            if time.monotonic() > deadline:
                raise TimeoutError("took too long")  # nobody waits any more
            data += block
            bar.update(len(block))
    if len(data) != size:
        raise OSError(f"expected {size} bytes, got {len(data)}")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise OSError("sent other bytes than expected (checksum differs)")
    return data


def _right(path, sha256):
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256
