"""Levels and handlers of Python's loggers, which each rank has for itself: of those loggers that any rank changes.

What an installed library sets up while it is imported, once for all ranks, is meant for all.
"""

import logging

from simgpu.ranks.modules import is_imported

_outside = {}  # {logger: what it was before a rank first changed it}


def entries():
    """Yield (owner, name, what takes its place) for the methods by which programs change a logger."""
    for name in ("setLevel", "addHandler", "removeHandler"):
        yield logging.Logger, name, _noting(getattr(logging.Logger, name))


def forget():
    """Forget which loggers were changed."""
    _outside.clear()


def leave():
    """Return what the loggers are that ranks have changed."""
    return {logger: _state(logger) for logger in _outside}


def enter(held):
    """Let them be what `leave` returned; those that were changed since are what they were before any rank."""
    changed = False
    for logger, outside in _outside.items():
        state = held.get(logger, outside)
        if _state(logger) != state:
            logger.level, handlers, logger.propagate, logger.disabled = state
            logger.handlers[:] = handlers
            changed = True
    if changed:
        logging.Logger.manager._clear_cache()  # which levels are enabled is remembered


def _state(logger):
    return logger.level, [*logger.handlers], logger.propagate, logger.disabled


def _noting(own):
    def method(logger, value):
        for_all = is_imported()
        if not for_all:
            _outside.setdefault(logger, _state(logger))
        own(logger, value)
        if for_all and logger in _outside:
            _outside[logger] = _state(logger)

    method.__name__, method.__doc__ = own.__name__, own.__doc__
    return method
