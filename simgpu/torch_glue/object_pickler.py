"""How ranks pickle the objects that they send to one another: into the same number of bytes in every run."""

import pickle

from torch.storage import TypedStorage, UntypedStorage

_DIGITS = 15  # of the largest address, on processors that we know


def pickler(own):
    """Return the class that pickles objects, with the same number of bytes in every run.

    torch names a storage by its address, twice, and that has 14 digits in one run and 15 in the next.
    """
    return _Pickler


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing):
        """Return how a storage is to be pickled: as torch says, with a name of a fixed length."""
        if not isinstance(thing, (TypedStorage, UntypedStorage)):
            return NotImplemented
        load, (content,) = thing.__reduce__()
        name = str(thing._cdata)
        return load, (content.replace(_pickled(name), _pickled(name.zfill(_DIGITS)), 2),)


def _pickled(text):
    return pickle.BINUNICODE + len(text).to_bytes(4, "little") + text.encode()
