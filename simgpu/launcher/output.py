"""The ranks' output, line by line, with ``[rank0]:`` in front, as torchrun writes it."""

import io
import sys


def of_rank(rank, shown=True):
    """Return a rank's sys.stdout and sys.stderr."""
    streams = (sys.__stdout__, sys.__stderr__)
    return [Prefixed(stream, f"[rank{rank}]:") if shown else Dropped() for stream in streams]


class Prefixed(io.TextIOBase):
    """A text stream that writes whole lines to `stream`, each after `prefix`; a line without an end waits for it."""

    def __init__(self, stream, prefix):
        self._stream, self._prefix, self._line = stream, prefix, ""

    encoding = property(lambda self: self._stream.encoding)
    errors = property(lambda self: self._stream.errors)
    name = property(lambda self: getattr(self._stream, "name", None))

    def write(self, text):
        """Write text; return its length."""
        *lines, self._line = (self._line + text).split("\n")
        self._line = _drawn(self._line)
        if lines:
            self._stream.write("".join(f"{self._prefix} {_drawn(line)}\n" for line in lines))
            self._stream.flush()
        return len(text)

    def close_line(self):
        """Write what has no end yet."""
        if self._line:
            self.write("\n")

    def writable(self):
        """Return True."""
        return True

    def isatty(self):
        """Return False, as for a rank of torchrun's."""
        return False

    def fileno(self):
        """Return the file descriptor below, whose bytes have no prefix."""
        return self._stream.fileno()

    @property
    def buffer(self):
        """Bytes, which are taken for text."""
        return _Bytes(self)

    def reconfigure(self, **options):
        """Do nothing: each line is written at once."""


def _drawn(line):
    """Return what a line shows in the end: a progress bar draws it again and again."""
    return line.rstrip("\r").rpartition("\r")[2]


class _Bytes(io.RawIOBase):
    def __init__(self, text):
        self._text = text

    def writable(self):
        return True

    def write(self, data):
        self._text.write(bytes(data).decode(self._text.encoding or "utf-8", "replace"))
        return len(data)


class Dropped(io.TextIOBase):
    """A stream that nobody reads: of a rank that ``--local-ranks-filter`` leaves out."""

    encoding = "utf-8"

    def write(self, text):
        """Drop the text; return its length."""
        return len(text)

    def writable(self):
        """Return True."""
        return True

    def close_line(self):
        """Do nothing."""
