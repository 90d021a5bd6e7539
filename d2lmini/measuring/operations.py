"""Every operation of torch inside a block, handed to a function."""

from torch.utils._python_dispatch import TorchDispatchMode


class Reporting(TorchDispatchMode):
    """Hands every operation inside the block to ``report(func, args, kwargs, out)``."""

    def __init__(self, report):
        """Keep the function that is called after each operation."""
        super().__init__()
        self.report = report

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operation, report it, return its result."""
        out = func(*args, **(kwargs or {}))
        self.report(func, args, kwargs or {}, out)
        return out
