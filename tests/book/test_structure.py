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
PACKAGES = tuple(FLOORS)
ROOT_FILES = {"d2lmini": {"__init__", "sim"}, "simgpu": {"__init__", "__main__"}}  # besides rooms of a single file
LONGEST_FILE, LONGEST_FUNCTION = 250, 40  # lines without docstrings
TABLES = {"features.py"}  # as long as what they list
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
MACHINE_PATH = re.compile(r"(?<![\w.$}/~-])/(?:work|root|home/\w+)(?:/|\b)")


@cache
def trees():
    """Return (path from the root, its syntax tree, its text) of every module of both packages."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    texts = [(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in paths if "build" not in path.parts]
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
            inside = [tuple(name.split(".")) for name in names if name.split(".")[0] in PACKAGES]
            found += [(path, path.with_suffix("").parts, name) for name in inside]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_downward(package):
    floor = {room: number for number, rooms in enumerate(FLOORS[package]) for room in rooms}
    wrong = [
        f"{path} imports {'.'.join(there)}"
        for path, here, there in imports()
        if here[0] == there[0] == package and len(there) > 1 and here[1] in floor and there[1] in floor
        if here[1] != there[1] and floor[there[1]] >= floor[here[1]]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_simulator_does_not_know_the_book():
    wrong = [f"{path} imports {'.'.join(there)}" for path, here, there in imports() if here[0] == "simgpu" != there[0]]
    assert not wrong, "\n".join(wrong)


def test_a_rooms_insides_are_its_own():
    wrong = [
        f"{path} imports {'.'.join(there)}"
        for path, here, there in imports()
        if here[:2] != there[:2] and any(part.startswith("_") for part in there)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_root_holds_rooms_and_a_few_files(package):
    rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    files = {path.stem for path in (ROOT / package).glob("*.py")}
    assert rooms | files - ROOT_FILES[package] == set().union(*FLOORS[package])


def lines_of_docstring(node):
    """Return how many lines the docstring of a module, a class or a function has, 0 for another node."""
    if not isinstance(node, ast.Module | ast.ClassDef | FUNCTIONS) or ast.get_docstring(node) is None:
        return 0
    return node.body[0].end_lineno - node.body[0].lineno + 1


def test_files_and_functions_are_short():
    wrong = []
    for path, tree, text in trees():
        if len(text.splitlines()) - sum(map(lines_of_docstring, ast.walk(tree))) > LONGEST_FILE:
            wrong += [] if path.name in TABLES else [f"{path} has more than {LONGEST_FILE} lines: split it"]
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                lines = node.end_lineno - node.lineno + 1 - lines_of_docstring(node)
                wrong += [f"{path}: {node.name} has {lines} lines"] if lines > LONGEST_FUNCTION else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("package", "project"), [("d2lmini", "."), ("simgpu", "simgpu")])
def test_every_folder_of_the_package_is_installed(package, project):
    text = (ROOT / project / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"(?m)^packages = (\[[^]]*\])", text)
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / package).rglob("__init__.py")}
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
    assert not set().union(*FLOORS["d2lmini"]) & set(d2lmini.__all__)
