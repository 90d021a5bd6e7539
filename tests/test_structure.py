"""How the package is built: who imports whom, how long things are, and what importing it does (nothing)."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "d2lmini"
LAYERS = {
    "hardware": 0, "host": 0, "machines": 0, "clusters": 0, "schedules": 0, "costs": 0, "schedule_costs": 0,
    "ledger": 0, "fits": 0, "results": 0,
    "sim": 1,
    "devices": 2, "timing": 2, "download": 2, "idx": 2,
    "transfers": 3, "overlap": 3, "throughput": 3, "kernels": 3, "memory": 3, "levels": 3, "roofline": 3,
    "tiles": 3, "cache": 3, "loops": 3, "systolic": 3, "macs": 3, "profile": 3, "footprint": 3,
    "agreement": 3, "collectives": 3, "buckets": 3,
    "data": 4, "loading": 4, "models": 4, "alexnet": 4, "resnet": 4, "data_parallel": 4, "backward_overlap": 4,
    "checkpoint": 5, "rng": 5, "history": 5, "losses": 5, "gradients": 5, "replicate": 5, "settings": 5,
    "lockstep": 5, "sync_batch_norm": 5, "parallel_module": 5, "compiling": 5, "replica_state": 5, "replicas": 5,
    "distributed": 5, "process_exchange": 5, "processes": 5, "ddp": 5, "engines": 5, "recording": 5,
    "trainer": 5, "ddp_lessons": 5, "process_lessons": 5, "arguments": 5, "train": 5,
    "checks": 6, "plots": 6, "memory_figures": 6, "result_figures": 6, "drawings": 6, "stepper": 6, "widgets": 6,
}  # fmt: skip
# Inside a layer a module may use one that stands earlier in the table.
ORDER = list(LAYERS)
FACADES = {"__init__", "__main__"}  # they gather the others
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 250, 45
MACHINE_PATH = re.compile(r"(?<![\w.$}/~-])/(?:work|root|home/\w+)(?:/|\b)")

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())


def top(path):
    """Return the name under which a file stands in the table: its module's, or that of its folder."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path):
    """Yield the package's modules that a file imports, at its top or inside its functions."""
    names = {module.relative_to(PACKAGE).parts[0].removesuffix(".py") for module in MODULES}
    depth = len(path.relative_to(PACKAGE).parts)  # how many dots lead to the package
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.split(".")[0] == "d2lmini"]
            targets = [name.partition(".")[2] or "__init__" for name in found]
        elif isinstance(node, ast.ImportFrom):
            inside = node.level == depth or (node.level == 0 and (node.module or "").split(".")[0] == "d2lmini")
            module = (node.module or "").removeprefix("d2lmini").lstrip(".") if inside else None
            targets = [module] if module else [alias.name for alias in node.names] if inside else []
        else:
            continue
        for target in targets:
            name = target.split(".")[0]
            yield name if name in names else "__init__"


@each_module
def test_imports_go_downward(path):
    name = top(path)
    if name in FACADES:
        return
    assert name in LAYERS, f"{name} stands in no layer: add it to LAYERS in {Path(__file__).name}"
    for target in imported(path):
        if target == name:
            continue
        assert target in LAYERS, f"{name} imports {target}, which stands in no layer"
        rank, below = (LAYERS[name], ORDER.index(name)), (LAYERS[target], ORDER.index(target))
        assert below < rank, f"{name} (layer {LAYERS[name]}) imports {target} (layer {LAYERS[target]})"


@each_module
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST_FILE, f"longer than {LONGEST_FILE} lines: split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            assert lines <= LONGEST_FUNCTION, f"{node.name} has {lines} lines, at most {LONGEST_FUNCTION}"


@each_module
def test_what_is_public_says_what_it_does(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module has no docstring"
    for owner in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
        for node in owner.body:
            setter = any(getattr(how, "attr", "") == "setter" for how in getattr(node, "decorator_list", ()))
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_") and not setter:
                assert ast.get_docstring(node), f"{node.name} has no docstring"


def test_every_folder_of_the_package_is_installed():
    listed = re.search(r"(?m)^packages = (.*)$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert set(ast.literal_eval(listed[1])) == folders


IMPORT = """
import random, sys
import numpy, torch

def state():
    return (torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads(), torch.is_grad_enabled(),
            torch.get_num_interop_threads(), torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
            torch._C._get_privateuse1_backend_name(), torch.get_rng_state().tolist(), random.getstate(),
            numpy.random.get_state()[1].tolist())

before, loaded = state(), set(sys.modules)
import d2lmini
assert state() == before, "importing d2lmini changed a global state"
heavy = {"matplotlib", "sklearn", "IPython", "ipywidgets", "torchvision"} & (set(sys.modules) - loaded)
assert not heavy, f"importing d2lmini imported {sorted(heavy)}"
"""


def test_importing_the_package_changes_nothing():
    done = subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout + done.stderr == ""


def test_no_file_names_a_path_of_some_machine():
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not in a git checkout")
    for name in listing.stdout.splitlines():
        path = ROOT / name
        if name == "tests/" + Path(__file__).name or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "ignore")
        found = MACHINE_PATH.search(re.sub(r'"image/(png|jpeg)": "[^"]*"', "", text))
        assert not found, f"{name} names {text[max(0, found.start() - 20) : found.end() + 20]!r}"
