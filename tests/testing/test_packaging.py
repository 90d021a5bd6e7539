"""The wheel and the source distribution of simgpu, installed where neither the tree nor another package is found."""

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.process
PROGRAM = Path(__file__).parent / "programs" / "installed.py"


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder with both distributions, made from a copy of the sources, for building leaves files beside them."""
    folder = tmp_path_factory.mktemp("simgpu")
    left_out = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(ROOT / "simgpu", folder / "source", ignore=left_out)
    build = "from setuptools import build_meta as b; b.build_sdist('../dist'); b.build_wheel('../dist')"
    run(sys.executable, "-c", build, cwd=folder / "source")
    return folder / "dist"


@pytest.fixture(scope="module")
def python(dist):
    """The Python of an empty environment that has the wheel, and beside it this one's torch and pytest."""
    venv = dist.parent / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=dist)
    (wheel,) = dist.glob("*.whl")
    python = venv / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=dist)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text(str(Path(torch.__file__).parents[1]))  # whose own .pth files are not read
    return python


def test_the_source_distribution_holds_all(dist):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {str(path.relative_to(ROOT / "simgpu")) for path in (ROOT / "simgpu").rglob("*.py")}
    wanted = {name for name in wanted if not name.startswith("build")}
    assert names >= wanted | {"hardware/gpus.csv", "README.md", "py.typed"}


def test_the_installed_wheel_changes_nothing_until_it_is_enabled(python, dist):
    assert int(run(python, PROGRAM, dist.parent, cwd=dist)) > 30


def test_the_readmes_tests_pass_with_the_installed_plugin(python, dist):
    text = (ROOT / "simgpu" / "README.md").read_text(encoding="utf-8")
    (dist / "test_readme.py").write_text(re.search(r"(?ms)^```python\n(.*?)^```", text)[1])
    told = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_readme.py", cwd=dist)
    assert "4 passed" in told
