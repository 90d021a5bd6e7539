"""One rank's program: a module ``__main__`` of its own, as Python makes one for a script or for ``-m``."""

import importlib.util
import os
import sys
import types


class Program:
    """A script's path, or with `is_module` a module's name, and its arguments."""

    def __init__(self, name, arguments, is_module=False):
        self.name, self.arguments, self.is_module = name, list(arguments), is_module
        if not is_module and not os.path.isfile(name):
            raise FileNotFoundError(f"expected a program, found no file {name}")

    def prepare(self):
        """Set ``sys.path`` and ``sys.argv`` as Python does before a program starts."""
        path = os.getcwd() if self.is_module else os.path.dirname(os.path.abspath(self.name))
        sys.path.insert(0, path)
        sys.argv = [self.name, *self.arguments]

    def __call__(self, rank):
        """Run it in the calling rank."""
        path, code, spec = self._code()
        module = types.ModuleType("__main__")
        module.__file__, module.__spec__, module.__builtins__ = path, spec, __builtins__
        module.__package__ = spec.parent if spec else None
        module.__loader__ = spec.loader if spec else None
        sys.argv = [path if spec else self.name, *self.arguments]
        sys.modules["__main__"] = module
        exec(code, module.__dict__)

    def _code(self):
        """Return the file, the compiled code and the spec, None of a script."""
        if not self.is_module:
            path = os.path.abspath(self.name)
            with open(path, "rb") as file:
                return path, compile(file.read(), path, "exec", dont_inherit=True), None
        spec = importlib.util.find_spec(self.name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{self.name}.__main__")
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"expected a module to run, found none of the name {self.name}")
        return spec.origin, spec.loader.get_code(spec.name), spec
