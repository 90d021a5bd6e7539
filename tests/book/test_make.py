"""What `make` does again and what it leaves, tried on a copy with a builder that only pretends."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import setup_venv

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
BUILDER = """#!/bin/sh
echo built >> builds
mkdir -p _build/html
[ ! -e broken ]
"""


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the project, small, with an environment that is set up, in a folder whose name needs care."""
    folder = tmp_path / "a b #1"
    (folder / "chapters").mkdir(parents=True)
    for name in ("Makefile", "_config.yml", "_toc.yml", "requirements.txt", "pyproject.toml", "index.ipynb"):
        shutil.copy2(ROOT / name, folder)
    (folder / "simgpu").mkdir()
    shutil.copy2(ROOT / "simgpu" / "pyproject.toml", folder / "simgpu")
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "chapters" / "one 2: 3.ipynb").write_text("{}")
    script(folder / ".venv" / "bin" / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    script(folder / ".venv" / "bin" / "jupyter-book", BUILDER)
    (folder / ".venv" / ".installed").write_text(os.path.realpath(folder))
    monkeypatch.chdir(folder)
    return folder


def make(*arguments):
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", *arguments], capture_output=True, text=True, check=False, env=keep)
    return done.returncode, done.stdout, done.stderr


def builds():
    return len(Path("builds").read_text().splitlines()) if Path("builds").exists() else 0


def change(name):
    """Make one source look newer than the built book, and all else older, whatever the clock's resolution."""
    now = time.time()
    for path in Path(".").rglob("*"):
        if path.is_file():
            os.utime(path, (now - 2000, now - 2000))
    os.utime("_build/.built", (now - 1000, now - 1000))
    os.utime(name, (now - 500, now - 500))


def test_the_book_is_built_again_only_when_a_source_changed(project):
    assert make("book")[0] == 0
    assert make("book")[1].strip().endswith("make serve shows it, and runs its cells")
    assert builds() == 1
    sources = ["index.ipynb", "chapters/one 2: 3.ipynb", "_config.yml", "_toc.yml", "tools/serve.py"]
    for count, name in enumerate(sources, start=2):
        change(name)
        assert make("book")[0] == 0
        assert builds() == count, name
    os.remove("chapters/one 2: 3.ipynb")
    make("book")
    make("book")
    assert builds() == 7


def test_a_failed_build_is_not_taken_for_a_book(project):
    Path("broken").touch()
    assert [make("book")[0] == 0 for _ in range(2)] == [False, False]
    os.remove("broken")
    assert (make("book")[0], builds()) == (0, 3)


@pytest.mark.parametrize("version", ["2, 7, 18", "3, 9, 25", None])
def test_an_old_or_missing_python_is_named_before_anything_is_made(project, version):
    shutil.rmtree(".venv")
    fake = f"import sys; sys.version_info = ({version}, 'final', 0); exec(sys.argv[1])"
    old = script(project / "oldpython", f'#!/bin/sh\nexec {sys.executable} -c "{fake}" "$2"\n')
    status, _, error = make("book", f"PYTHON={old if version else 'no-such-python'}")
    assert status != 0
    assert (version or "no-such-python").replace(", ", ".") in error.splitlines()[0]
    assert not Path(".venv").exists()


def without_venv(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    return folder


def of_another_folder(folder, monkeypatch):
    script(folder / "other" / "bin" / "python", "#!/bin/sh\nexit 0\n")
    (folder / "here").mkdir()
    (folder / "here" / ".venv").symlink_to(folder / "other")
    (folder / "other" / ".installed").write_text(str(folder))
    return folder / "here"


def with_a_colon(folder, monkeypatch):
    if sys.version_info < (3, 11):
        pytest.skip("venv takes the colon")
    (folder / "a:b").mkdir()
    return folder / "a:b"


@pytest.mark.parametrize(
    ("prepare", "word"), [(without_venv, "python3-venv"), (of_another_folder, "link"), (with_a_colon, "separator")]
)
def test_where_no_environment_can_be_made_one_line_says_why_and_all_stays(tmp_path, monkeypatch, capsys, prepare, word):
    monkeypatch.chdir(prepare(tmp_path, monkeypatch))
    before = sorted(tmp_path.rglob("*"))
    assert setup_venv.main() == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert word in error
    assert sorted(tmp_path.rglob("*")) == before


def test_a_half_made_environment_is_made_again(project):
    for change, works in [
        (lambda: None, True),
        (setup_venv.UNFINISHED.touch, False),
        (setup_venv.UNFINISHED.unlink, True),
        (lambda: setup_venv.STAMP.write_text("/somewhere/else"), False),  # moved: its scripts name the old folder
        (setup_venv.STAMP.unlink, True),
        (lambda: script(setup_venv.PYTHON, "#!/bin/sh\nexit 1\n"), False),  # no pip
        (setup_venv.PYTHON.unlink, False),
    ]:
        change()
        assert setup_venv.works() == works


def test_help_names_every_target(project):
    _, out, _ = make()
    for target in ("book", "slides", "serve", "lab", "chapters", "test", "clean", "help"):
        assert f"make {target} " in out
