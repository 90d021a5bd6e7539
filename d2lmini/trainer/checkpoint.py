"""Checkpoints: files that are there whole or not at all.

    state ──torch.save──► a new file ──► NAME becomes NAME.previous too ──► new file → NAME

Whenever the program dies, NAME is a whole checkpoint: the old one or the new one. It is an ordinary file of torch's,
a zip archive whose parts have checksums: ``torch.load(NAME, weights_only=True)`` reads it as well.
"""

import os
import shutil
import socket
import zipfile
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from torch.utils._pytree import tree_map

from d2lmini.distributed.errors import CheckpointError
from d2lmini.trainer import atomic_files
from d2lmini.wording import first_line, printable, quoted

FORMAT = "d2lmini checkpoint 3"


class Checkpoint:
    """The checkpoint at `path`, and the one before it, which is `previous`; `name` is how it is told."""

    def __init__(self, path):
        self.name, self.path = printable(path), atomic_files.real(path)
        self.previous = self.path.with_name(self.path.name + ".previous")

    def write(self, state: dict) -> None:
        """Write `state` and keep the file before it.

        Tensors are written as they are on the CPU, so that a machine with other devices can read them.

        Args:
            state: nested dicts, lists and tuples of tensors, numbers and strings.

        Raises:
            CheckpointError: when the file cannot be written, is no checkpoint, or `state` holds what
                ``weights_only=True`` would refuse to load; the files stay as they were.
        """
        self.check()
        content = tree_map(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, {"format": FORMAT, **state})
        with self._writing(), atomic_files.replacing(self.path, before=self._keep) as file:
            _save(content, file)
            self._load(file.name, "meta")  # what cannot be loaded never takes the place of what can

    def read(self) -> dict:
        """Return the state that `write` wrote, its tensors on the CPU.

        Raises:
            CheckpointError: for a file that is not there, cut short, damaged or something else; it says how to go on
                from the checkpoint before it, if that is whole.
        """
        flaw = _flaw(self.path)
        if flaw:
            raise CheckpointError(f"{self.name}: {flaw}{self._advice()}")
        state = self._load(self.path)
        if not _is_ours(state):
            raise CheckpointError(f"{self.name}: is no checkpoint of the trainer{self._advice()}")
        return {name: value for name, value in state.items() if name != "format"}

    def check(self) -> None:
        """Raise CheckpointError unless it can be written without destroying another kind of file."""
        with self._writing():
            atomic_files.check(self.path)
            for name, path in ((printable(self.previous), self.previous), (self.name, self.path)):
                if os.path.lexists(path) and not (path.is_file() and _is_ours(self._load(path, "meta", strict=False))):
                    what, advice = "whole checkpoint" if path.is_file() else "regular file", self._advice()
                    raise CheckpointError(
                        f"{name}: is no {what}, so it is not written over{advice or ': choose another name'}"
                    )

    def is_there(self) -> bool:
        """Return whether there is such a file.

        Raises:
            CheckpointError: Where only the one before it is left.
        """
        if not self.path.exists() and self.previous.exists():
            raise CheckpointError(
                f"{self.name}: is gone, and {printable(self.previous)} is still there{self._advice()}; or move "
                "that away to start from the beginning"
            )
        return self.path.exists()

    def found(self, comm) -> bool:
        """Return whether rank 0 has such a file; a collective call of all the processes of `comm`.

        Raises:
            CheckpointError: Where another has it and rank 0 has not: torchrun may have started it on another machine.
        """
        if comm.on_rank_0(self.is_there):
            return True
        hosts = comm.gather([socket.gethostname() if self.path.exists() else None for _ in comm.here])
        having = [f"rank {rank} on {host}" for rank, host in enumerate(hosts) if host]
        if having:
            raise CheckpointError(
                f"{self.name}: {', '.join(having)} has it, but not rank 0, which reads and writes "
                "it: choose a folder that all machines share, or copy it there"
            )
        return False

    @contextmanager
    def held(self):
        """Hold the file inside, through a lock beside it.

        Raises:
            CheckpointError: Where another run does, or the file cannot be written.
        """
        self.check()
        lock = FileLock(atomic_files.hidden_beside(self.path, "lock"), timeout=0)
        try:
            lock.acquire()
        except OSError as error:  # a Timeout is one too
            why = (
                "another run writes there: choose another name, or wait for it"
                if isinstance(error, Timeout)
                else f"cannot be locked: {error.strerror}"
            )
            raise CheckpointError(f"{self.name}: {why}") from error
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    @contextmanager
    def _writing(self):
        try:
            yield
        except OSError as error:
            raise CheckpointError(f"{self.name}: cannot be written: {error.strerror}") from error

    def _load(self, path, where="cpu", strict=True):
        """Return what a file holds; where it is nothing that can be loaded, raise CheckpointError, or return None."""
        try:
            with open(path, "rb") as file:  # torch's own opening refuses names that are no UTF-8
                return torch.load(file, map_location=where, weights_only=True)
        except Exception as error:  # whatever torch's reader says
            if not strict:
                return None
            what = f"holds what weights_only=True does not load: {first_line(error)}"
            raise CheckpointError(f"{self.name}: {what}") from error

    def _keep(self):
        """Give a whole checkpoint its second name; it keeps the first one until the new file takes it."""
        if not self.path.exists() or _flaw(self.path):
            return  # a damaged one must not push out a whole one
        spare = atomic_files.hidden_beside(self.path, "previous")
        spare.unlink(missing_ok=True)
        try:
            try:
                os.link(self.path, spare)
            except OSError:  # a file system without hard links
                shutil.copyfile(self.path, spare)
            os.replace(spare, self.previous)
        finally:
            spare.unlink(missing_ok=True)  # renaming one name of a file to another name of it does nothing

    def _advice(self):
        if _flaw(self.previous) or not _is_ours(self._load(self.previous, "meta", strict=False)):
            return ""
        move = f"mv {quoted(self.previous)} {quoted(self.path)}"
        return f"; the last whole one is {printable(self.previous)}: go on from it after `{move}`"


def _save(state, file):
    try:
        torch.save(state, file)
    except RuntimeError as error:  # torch's, when a write has failed
        raise error.__context__ if isinstance(error.__context__, OSError) else error from None


def _is_ours(content):
    return isinstance(content, dict) and content.get("format") == FORMAT


def _flaw(path):
    """Return why a file is no whole archive, or None: torch.load does not compare the checksums in it."""
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        return "is no regular file, but a directory, a pipe or a device"
    try:
        with zipfile.ZipFile(path) as archive:
            return "is damaged: a part of it has another checksum than it names" if archive.testzip() else None
    except Exception as error:  # whatever zipfile says of bytes that are no archive
        if getattr(error, "strerror", None):
            return f"cannot be read: {error.strerror}"
        return f"is no checkpoint of the trainer, or its end is missing, after {os.path.getsize(path):,} bytes"
