"""How the package is built: who imports whom, and how long things are."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from package_map import FLOORS

import d2lmini

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "d2lmini"
ROOT_FILES = {"__init__.py", "devices.py", "timing.py", "train.py"}
SIM_FLOORS = [{"model"}, {"device"}, {"patches"}, {"ranks"}]
PRIVATE = {("sim", "model"), ("sim", "device"), ("sim", "patches")}  # besides what begins with an underscore
LONGEST_FILE, LONGEST_FUNCTION = 250, 45
MACHINE_PATH = re.compile(r"(?<![\w.$}/~-])/(?:work|root|home/\w+)(?:/|\b)")


@cache
def trees():
    """Return (path inside the package, its syntax tree, its text) of every module."""
    texts = [(path.relative_to(PACKAGE), path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    return [(path, ast.parse(text), text) for path, text in texts]


@cache
def imports():
    """Return (path, parts of its name, parts of the imported name) of all imports, at the top or inside functions."""
    found = []
    for path, tree, _ in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: a relative import at line {node.lineno}: name the room"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            inside = [tuple(name.split(".")[1:]) for name in names if name.startswith("d2lmini.")]
            found += [(path, path.with_suffix("").parts, name) for name in inside]
    return found


@pytest.mark.parametrize(("floors", "house"), [(FLOORS, ()), (SIM_FLOORS, ("sim",))], ids=["package", "sim"])
def test_imports_go_downward(floors, house):
    floor, depth, wrong = {room: n for n, rooms in enumerate(floors) for room in rooms}, len(house), []
    for path, here, there in imports():
        inside = here[:depth] == there[:depth] == house and here[depth] in floor
        if inside and here[depth] != there[depth] and floor[there[depth]] >= floor[here[depth]]:
            wrong.append(f"{path} imports {'.'.join(there)}")
    assert not wrong, "\n".join(wrong)


def test_a_rooms_insides_are_its_own():
    wrong = [f"{path} imports {'.'.join(there)}" for path, here, there in imports() if here[0] != there[0]
             and (any(part.startswith("_") for part in there) or there[:2] in PRIVATE)]  # fmt: skip
    assert not wrong, "\n".join(wrong)


def test_the_root_holds_rooms_and_four_files():
    assert {path.name for path in PACKAGE.glob("*.py")} == ROOT_FILES
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms | {"devices", "timing", "train"} == set().union(*FLOORS)


def test_files_and_functions_are_short():
    wrong = []
    for path, tree, text in trees():
        if len(text.splitlines()) > LONGEST_FILE:
            wrong.append(f"{path} has more than {LONGEST_FILE} lines: split it")
        for node in ast.walk(tree):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if function and node.end_lineno - node.lineno >= LONGEST_FUNCTION:
                wrong.append(f"{path}: {node.name} has more than {LONGEST_FUNCTION} lines")
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_the_package_is_installed():
    listed = re.search(r"(?m)^packages = (\[[^]]*\])", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert set(ast.literal_eval(listed[1])) == folders


def test_no_file_names_a_path_of_some_machine():
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not in a git checkout")
    for name in listing.stdout.splitlines():
        path = ROOT / name
        if path == Path(__file__).resolve() or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "ignore")
        found = MACHINE_PATH.search(re.sub(r'"image/(png|jpeg)": "[^"]*"', "", text))
        assert not found, f"{name} names {text[max(0, found.start() - 20) : found.end() + 20]!r}"


def test_no_room_hides_a_name_of_the_package():
    assert not set().union(*FLOORS) & set(d2lmini.__all__)
