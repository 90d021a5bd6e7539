"""Checkpoints: files that are there whole or not at all, and that say so themselves.

    state ──torch.save──► bytes ──seal──► NAME.tmp, on the disk ──► NAME becomes NAME.previous too ──► NAME.tmp → NAME

Whenever the program dies, NAME is a whole checkpoint: the old one or the new one. A file is what ``torch.save`` writes,
a ZIP archive, with a seal in the place for the archive's comment: a title and the SHA-256 of all bytes before it. So
``torch.load(NAME, weights_only=True)`` reads it as well.
"""

import hashlib
import io
import os
import shutil
import socket
from pathlib import Path

import torch
from torch.utils._pytree import tree_map

TITLE = b"d2lmini checkpoint 1 sha256="
SEAL_BYTES = len(TITLE) + 64  # the title and a SHA-256 in hex


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, written or used; the message begins with the file's name."""


def write(path, state):
    """Write `state`, nested dicts, lists and tuples of tensors, numbers and strings, and keep the file that was there.

    Tensors are written as they are on the CPU, so that a machine with other devices can read them. The old file is
    then NAME.previous. Raises CheckpointError when the file cannot be written, `path` is a file that is no checkpoint,
    or `state` holds what ``weights_only=True`` would refuse to load; the files stay as they were.
    """
    path = Path(path)
    check_target(path)
    sealed = _sealed(tree_map(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, state))
    _state(sealed, path)  # a checkpoint that cannot be loaded never takes the place of one that can
    fresh = path.with_name(path.name + ".tmp")
    try:
        with open(fresh, "wb") as file:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and _flaw(path.read_bytes()) is None:  # a damaged one must not push out a whole one
            _keep(path)
        os.replace(fresh, path)
        _sync(path.parent)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error.strerror}") from error


def read(path):
    """Return the state that `write` wrote, its tensors on the CPU.

    Raises CheckpointError for a file that is not there, cut short, damaged or something else, and then names the
    checkpoint before it, if there is one.
    """
    path = Path(path)
    try:
        return _state(path.read_bytes(), path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}{_advice(path)}") from error


def exists(path, engine):
    """Return whether rank 0 has such a file; a collective call of all the processes that `engine` trains in.

    Raises CheckpointError where another has it and rank 0 has not: torchrun may have started it on another machine.
    """
    if engine.first(Path(path).exists):
        return True
    hosts = engine.gather([socket.gethostname() if Path(path).exists() else None] * engine.world_size)
    found = [f"rank {rank} on {host}" for rank, host in enumerate(hosts) if host]
    if found:
        raise CheckpointError(f"{path}: {', '.join(found)} has it, but not rank 0, which reads and writes it: choose a "
                              "folder that all machines share, or copy it there")  # fmt: skip
    return False


def check_target(path):
    """Raise CheckpointError unless a checkpoint can be written to `path` without destroying another kind of file."""
    path = Path(path)
    if not path.parent.is_dir():
        raise CheckpointError(f"{path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise CheckpointError(f"{path}: cannot be written: {'is a folder' if path.is_dir() else 'permission denied'}")
    if path.exists() and not _sealed_once(path):
        raise CheckpointError(f"{path}: is no whole checkpoint, so it is not written over: remove it, or choose a name")


def _sealed(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    body = buffer.getvalue()[:-2]  # a ZIP archive ends in the length of its comment, 16 bits, here 0
    body += SEAL_BYTES.to_bytes(2, "little")
    return body + TITLE + hashlib.sha256(body).hexdigest().encode()


def _flaw(sealed):
    """Return what is wrong with a file's bytes, or None."""
    body, seal = sealed[:-SEAL_BYTES], sealed[-SEAL_BYTES:]
    if not seal.startswith(TITLE):
        return "is no checkpoint of the trainer, or its end is missing"
    if seal != TITLE + hashlib.sha256(body).hexdigest().encode():
        return "is damaged: its contents do not have the checksum that it names"
    return None


def _state(sealed, path):
    flaw = _flaw(sealed)
    if flaw:
        raise CheckpointError(f"{path}: {flaw} ({len(sealed):,} bytes){_advice(path)}")
    try:
        return torch.load(io.BytesIO(sealed), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever torch's reader says, the file was not made by `write`
        line = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{path}: holds what weights_only=True does not load: {line}") from error


def _sealed_once(path):
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - SEAL_BYTES))
        return file.read(len(TITLE)) == TITLE


def _previous(path):
    return path.with_name(path.name + ".previous")


def _advice(path):
    return f"; the checkpoint before it is {_previous(path)}" if _previous(path).exists() else ""


def _keep(path):
    """Give the checkpoint its second name, NAME.previous; it keeps the first one until the new file takes it."""
    spare = path.with_name(path.name + ".previous.tmp")
    spare.unlink(missing_ok=True)
    try:
        os.link(path, spare)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, spare)
    os.replace(spare, _previous(path))
    spare.unlink(missing_ok=True)  # renaming one name of a file to another name of it does nothing


def _sync(folder):
    """Have the folder's new entry on the disk too, where the system can do that."""
    if hasattr(os, "O_DIRECTORY"):
        entry = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)
