"""Where a benchmark writes its figures: a path that can't be written is refused before the work begins."""

import sys
from pathlib import Path

from d2lmini.trainer import atomic_files


def writable(path):
    """Return `path`, the ``type=`` of an option; ends the program in one line where no file can be written there."""
    try:
        atomic_files.check(path)
    except OSError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: cannot write {path}: {error.strerror}")
    return Path(path)
