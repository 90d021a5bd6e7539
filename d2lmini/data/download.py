"""Fetching one published file, from the first mirror that delivers it, checked before it gets its name.

    there and right? ── yes ─────────────────────────────────────────────────> done
      └─ no ─> lock ─> for each mirror: name.part, checksum right? ─> rename to the final name

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

LIMIT_SECONDS = 900  # for one mirror: 26 MB at 30 kB/s
SILENCE_SECONDS = 30  # without a byte
BLOCK_BYTES = 1 << 16
ADVICE = "or put the files in a folder and set D2LMINI_DATA to that folder"


class DownloadError(RuntimeError):
    """A file could not be fetched; its one line says which file, why, and what to do."""


def fetch(name, mirrors, sha256, size, folder, limit=LIMIT_SECONDS):
    """Return the path of the file `name` in `folder`, downloading it if it is not there or not right.

    `mirrors`: addresses of folders that hold the file, tried in order; `limit`: the seconds that each gets. `sha256`:
    in hex; `size`: in bytes. A second process waits for the first. A wrong file stays until a right one has arrived.
    Raises DownloadError when no mirror delivers, the disk is full, or the folder can't be written.
    """
    target = Path(folder, name)
    try:
        if not _verified(target, sha256):
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{target}.lock", timeout=limit * len(mirrors)):  # dropped by the system if its holder dies
                if not _verified(target, sha256):
                    _from_mirrors(target, mirrors, sha256, size, limit)
    except OSError as error:
        raise DownloadError(f"{name}: can't be kept in {folder}: {error.strerror or error}; make room or choose a "
                            f"folder that can be written (XDG_CACHE_HOME), {ADVICE}") from None
    return target


def _from_mirrors(target, mirrors, sha256, size, limit):
    part = target.with_name(f"{target.name}.part")
    reasons = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{target.name}"
        try:
            with open(part, "wb") as out:
                failure = _receive(url, out, size, time.monotonic() + limit)
            if not failure and _verified(part, sha256):
                os.replace(part, target)
                return
        finally:
            part.unlink(missing_ok=True)
        reasons.append(f"{url}: {failure or 'sent other bytes than expected (checksum differs)'}")
    raise DownloadError(f"{target.name}: no mirror delivered it ({'; '.join(reasons)}); check the network and run this "
                        f"again, {ADVICE}")


def _receive(url, out, size, deadline):
    """Write what `url` sends to the file `out`; return why that is not the file, or None. The disk raises OSError."""
    blocks = _blocks(url, deadline)
    with tqdm(total=size, unit="B", unit_scale=True, desc=url.rpartition("/")[2]) as bar:
        while True:
            try:
                block = next(blocks, b"")
            except (OSError, HTTPException) as error:  # of the network: HTTPError and URLError are OSErrors
                return str(error) or type(error).__name__
            if not block or out.tell() > size:
                return None if out.tell() == size else f"expected {size} bytes, got {out.tell()}"
            out.write(block)
            bar.update(len(block))


def _blocks(url, deadline):
    """Yield what `url` sends; raise OSError or HTTPException when it fails, is silent or is not done in time."""
    with urlopen(Request(url, headers={"User-Agent": "d2lmini"}), timeout=SILENCE_SECONDS) as reply:
        while block := reply.read1(BLOCK_BYTES):
            if time.monotonic() > deadline:
                raise TimeoutError("took too long")
            yield block


def _verified(path, sha256):
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256
