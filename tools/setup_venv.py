"""Make .venv and install the requirements and the package into it; running it again finishes or repairs it."""

import os
import subprocess
import sys
from pathlib import Path

VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".installed"  # the folder that it was made for; `make` looks at it
UNFINISHED = VENV / ".installing"


def works():
    """Say whether .venv has a Python with pip, is finished, and was made for this folder: its scripts hold its path."""
    if UNFINISHED.exists() or not os.access(PYTHON, os.X_OK):
        return False
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") != os.getcwd():
        return False
    return subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def make_venv():
    """Make an empty .venv with pip in it; raise RuntimeError where that is impossible, or would empty another's."""
    if VENV.is_symlink():
        raise RuntimeError(
            f"{VENV} is a link to {VENV.resolve()}, made for another folder, and would be emptied; remove the link"
        )
    try:
        import ensurepip  # noqa: F401 - Debian splits it off
        import venv
    except ImportError as error:
        raise RuntimeError(
            f"this Python can't make virtual environments ({error}); on Debian and Ubuntu: apt-get install python3-venv"
        ) from error
    venv.create(VENV, clear=True, symlinks=True, with_pip=True)


def install():
    """Make .venv if it is missing or broken, install into it; the stamp comes last."""
    if not works():
        make_venv()
    UNFINISHED.touch()
    STAMP.unlink(missing_ok=True)
    print("Installing what the book needs into .venv (the first time this takes minutes) ...", flush=True)
    # Errors only: pip warns about each package that one of several indexes lacks. Python compiles a module when it is
    # first imported; pip would compile all 14,000 of them, of which most are never imported.
    pip = [str(PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "-r", "requirements.txt"], check=True)
    # What the packages depend on was installed, pinned, the line before.
    subprocess.run([*pip, "--no-deps", "--editable", "./simgpu", "--editable", "."], check=True)
    STAMP.write_text(os.getcwd(), encoding="utf-8")
    UNFINISHED.unlink()


def main():
    """Install; return the exit status."""
    try:
        install()
    except subprocess.CalledProcessError as error:
        command = " ".join(error.cmd)
        print(f"setting up .venv stopped at: {command} (its own message is above); run make again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setting up .venv was interrupted; run make again", file=sys.stderr)
        return 130
    except (OSError, RuntimeError, ValueError) as error:  # ValueError: the folder's name has a colon
        print(f"can't set up .venv: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
