"""The command ``simgpu``, also as ``python -m simgpu``: runs programs on simulated GPUs; see `launcher`."""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    from simgpu.launcher.commands import run_command

    return run_command(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
