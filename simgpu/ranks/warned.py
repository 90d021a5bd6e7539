"""Warnings on ranks: each is shown once a rank, as in a process of its own.

Python forgets what it has shown when the filters change, as they do here whenever a rank goes on that has other ones.
And a library that ranks share sets its filters once, while the first rank imports it: they are meant for all.
"""

import warnings

from simgpu.ranks.modules import is_imported
from simgpu.torch_glue.here import here

_AGAIN = ("always", "all")


def entries():
    """Yield (owner, name, what takes its place)."""
    yield warnings, "_showwarnmsg", _once(warnings._showwarnmsg, warnings._showwarnmsg_impl)
    for name in ("filterwarnings", "simplefilter"):
        yield warnings, name, _for_all(getattr(warnings, name))


def _once(own, printing):
    def show(message):
        rank = here()
        if rank is not None and warnings._showwarnmsg_impl is printing and not _every_time(message):
            key = str(message.message), message.category, message.filename, message.lineno
            if key in rank.warned:
                return
            rank.warned.add(key)
        own(message)

    return show


def _every_time(message):
    for action, text, category, _, line in warnings.filters:
        matches = text is None or text.match(str(message.message))
        if matches and issubclass(message.category, category) and line in (0, message.lineno):
            return action in _AGAIN
    return False


def _for_all(own):
    def add(*args, **options):
        own(*args, **options)
        if here() is not None and is_imported():
            for rank in here().world.ranks:
                if rank is not here() and rank.process is not None:
                    rank.process.filters().insert(0, warnings.filters[0])

    add.__name__, add.__doc__ = own.__name__, own.__doc__
    return add
