"""The ranks' output, line by line, with ``[rank0]:`` in front, as torchrun writes it.

All ranks have the same two objects as sys.stdout and sys.stderr, which write for the rank that runs: a library that
ranks share may have kept one, for its logs.
"""

import contextlib
import io
import sys

from simgpu.accounting.allocator import Running


@contextlib.contextmanager
def of_rank(rank, shown=True):
    """Let the calling rank print inside; what it prints goes nowhere unless it is `shown`."""
    prefix = f"[rank{rank}]:" if shown else None
    Running.process.lines = lines = [Lines(stream, prefix) for stream in (sys.__stdout__, sys.__stderr__)]
    sys.stdout, sys.stderr = _STREAMS
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):  # the program's own, where it has put one there
            with contextlib.suppress(Exception):
                stream.flush()
        for each in lines:
            each.close()


class Lines:
    """Writes whole lines to `stream`, each after `prefix`, nothing where that is None; a line without an end waits."""

    def __init__(self, stream, prefix):
        self.stream, self._prefix, self._line = stream, prefix, ""

    def write(self, text):
        """Write text."""
        *lines, self._line = (self._line + text).split("\n")
        self._line = _drawn(self._line)
        if lines and self._prefix is not None:
            self.stream.write("".join(f"{self._prefix} {_drawn(line)}\n" for line in lines))
            self.stream.flush()

    def close(self):
        """Write what has no end yet."""
        if self._line:
            self.write("\n")


class Stream(io.TextIOBase):
    """sys.stdout (0) or sys.stderr (1) of whichever rank runs; outside of ranks, Python's own."""

    def __init__(self, which):
        self._which = which

    encoding = property(lambda self: self._below.encoding)
    errors = property(lambda self: self._below.errors)
    name = property(lambda self: getattr(self._below, "name", None))

    @property
    def _lines(self):
        lines = getattr(Running.process, "lines", None)
        return None if lines is None else lines[self._which]

    @property
    def _below(self):
        return (sys.__stdout__, sys.__stderr__)[self._which] if self._lines is None else self._lines.stream

    def write(self, text):
        """Write text; return its length."""
        (self._lines or self._below).write(text)
        return len(text)

    def writable(self):
        """Return True."""
        return True

    def isatty(self):
        """Return False, as for a rank of torchrun's."""
        return False

    def fileno(self):
        """Return the file descriptor below, whose bytes have no prefix."""
        return self._below.fileno()

    @property
    def buffer(self):
        """Bytes, which are taken for text."""
        return _Bytes(self)

    def reconfigure(self, **options):
        """Do nothing: each line is written at once."""


class _Bytes(io.RawIOBase):
    def __init__(self, text):
        self._text = text

    def writable(self):
        return True

    def write(self, data):
        self._text.write(bytes(data).decode(self._text.encoding or "utf-8", "replace"))
        return len(data)


_STREAMS = Stream(0), Stream(1)


def _drawn(line):
    """Return what a line shows in the end: a progress bar draws it again and again."""
    return line.rstrip("\r").rpartition("\r")[2]
