"""Names that are replaced for a while: what `as_cuda` and simulated ranks do to torch, and undo."""

import contextlib

_INHERITED = object()


@contextlib.contextmanager
def replaced(entries):
    """Replace names inside, and put back what was there; entries: (owner, name, what takes its place) of each."""
    entries = list(entries)
    before = [(owner, name, vars(owner).get(name, _INHERITED)) for owner, name, _ in entries]
    for owner, name, new in entries:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for owner, name, old in before:
            delattr(owner, name) if old is _INHERITED else setattr(owner, name, old)
