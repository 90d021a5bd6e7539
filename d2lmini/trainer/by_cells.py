"""Classes that grow over a notebook's cells, as d2l writes them: a method a cell, arguments kept as attributes."""

import inspect


def add_to_class(cls):
    """Return a decorator that makes a function a method of `cls`, under its own name."""

    def add(function):
        setattr(cls, function.__name__, function)
        return function

    return add


class HyperParameters:
    """A base class whose ``__init__`` may keep its arguments."""

    def save_hyperparameters(self, ignore=()):
        """Keep the arguments of the method that calls this as attributes, but for the names in `ignore`."""
        frame = inspect.currentframe().f_back
        names, _, _, values = inspect.getargvalues(frame)
        self.hparams = {
            name: values[name] for name in names if name not in (*ignore, "self") and not name.startswith("_")
        }
        for name, value in self.hparams.items():
            setattr(self, name, value)
