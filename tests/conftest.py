"""What all tests share: tools/ can be imported, one browser, and files that do not disturb one another."""

import ast
import gc
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

# Under nohup, or behind & in a script, SIGINT is ignored, and so it would be in the programs that tests start and
# interrupt. A handler is not inherited; this one ignores as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda *_: None)

# The same examples every time, and no limit to the time they take: another program may need the processor.
settings.register_profile("tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def pytest_configure(config):
    """Fork the notebooks' kernels, where the system can say whether a process lives that is not one's own child."""
    if config.getoption("nbval", False) and hasattr(os, "pidfd_open"):
        import forked_kernels

        forked_kernels.use()


def pytest_make_parametrize_id(val):
    """Name a lambda of a table by its line, so that a failure says which one it was."""
    return f"line {val.__code__.co_firstlineno}" if getattr(val, "__name__", "") == "<lambda>" else None


def pytest_collection_modifyitems(items):
    """Let files that take long come first, so that at the end no worker waits for another."""
    kinds = {}
    for item in items:
        kinds.setdefault(item.path, {item.path.suffix}).update(mark.name for mark in item.iter_markers())
    order = ("browser", ".ipynb", "process", "slow")
    items.sort(key=lambda item: [kind not in kinds[item.path] for kind in order])


def pytest_collection_finish():
    """Take what was imported from the garbage collector: it runs after every error, and looked at a million objects.

    The files of tests are loaded only while their own tests run: simulated ranks have the variables of all that a
    program has loaded for themselves, and what stands in a hundred other files would be put aside at every change.
    """
    for name in [name for name in sys.modules if name.startswith("test_")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _loaded(request):
    sys.modules[request.module.__name__] = request.module
    yield
    del sys.modules[request.module.__name__]


@pytest.fixture(scope="session")
def taught():
    """A function that only a chapter defines: ``taught(chapter, name, **the names that it uses)``."""

    def find(chapter, name, **names):
        cells = json.loads((ROOT / "chapters" / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
        found = [source for source in ("".join(cell["source"]) for cell in cells) if f"def {name}(" in source]
        (tree,) = [node for node in ast.parse(found[0]).body if getattr(node, "name", None) == name]
        exec(compile(ast.Module([tree], []), chapter, "exec"), names)
        return names[name]

    return find


@pytest.fixture(scope="session")
def browser():
    """The machine's Chromium or Chrome, without a window."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no browser found; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(autouse=True, scope="module")
def simulated_gpus_are_left_empty():
    """Fail the file whose tests leave something on simulated GPUs: the next may want other GPUs, or to count bytes."""
    before = {id(tensor) for tensor in _left()[0]}
    yield
    sys.last_value = sys.last_traceback = sys.last_exc = None  # a failed test's frames, where pytest keeps them
    gc.collect()
    tensors, counted = _left()
    new = [f"{tuple(tensor.shape)} on {tensor.device}" for tensor in tensors if id(tensor) not in before]
    assert not new, f"expected no tensor left on a simulated GPU, found {len(new)}: {', '.join(new[:5])}"
    assert tensors or not counted, f"expected no bytes counted on simulated GPUs without tensors, found {counted}"
    if not tensors:
        if "simgpu.control" in sys.modules:
            sys.modules["simgpu.control"].disable()  # the next file does not find GPUs of a kind that it has not chosen
        gc.freeze()  # what this file has imported, so that nobody looks at it again


def _left():
    """Return the tensors on simulated GPUs, and the bytes that are counted there by index."""
    if "simgpu.device.gpu_list" not in sys.modules:
        return [], {}
    from simgpu.device import gpu_list
    from simgpu.device.state import state

    return gpu_list.tensors(), {gpu.index: gpu.allocator.allocated for gpu in state.gpus if gpu.allocator.allocated}
