"""Objects on their way between ranks, whose bytes are as many in every run."""

import pickle

from torch.storage import TypedStorage, UntypedStorage

_DIGITS = 15  # of the largest address, on processors that we know


class Pickler(pickle.Pickler):
    """Pickle tensors as torch does, but with the same number of bytes always.

    torch names a storage by its address, twice, and that has 14 digits in one run and 15 in the next.
    """

    def reducer_override(self, thing):
        """Return how a storage is to be pickled: as torch says, with a name of a fixed length."""
        if not isinstance(thing, (TypedStorage, UntypedStorage)):
            return NotImplemented
        load, (content,) = thing.__reduce__()
        name = str(thing._cdata)
        return load, (content.replace(_pickled(name), _pickled(name.zfill(_DIGITS)), 2),)


def _pickled(text):
    return pickle.BINUNICODE + len(text).to_bytes(4, "little") + text.encode()
