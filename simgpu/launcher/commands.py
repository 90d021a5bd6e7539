"""The commands of ``simgpu``: which there are, and what each is given."""

import argparse
import os
import sys

_HELP = """usage: simgpu COMMAND ...

  run        run a program on simulated GPUs, in torchrun's manner: simgpu run --nproc-per-node 4 train.py
  smi        the table of nvidia-smi for the GPUs of a machine
  machines   the machines that can be simulated, and the cards
  features   what of torch is taught to run on simulated GPUs
  doctor     what this torch supports

simgpu COMMAND --help says more. torch's own documentation of torchrun holds for simgpu run."""


def run_command(arguments):
    """Run a command of the command line; return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_HELP)
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in _COMMANDS:
        print(f"simgpu: expected one of {', '.join(_COMMANDS)}, got {name}", file=sys.stderr)
        return 2
    try:
        return _COMMANDS[name](rest) or 0
    except BrokenPipeError:  # whoever read it wants no more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, FileNotFoundError, ModuleNotFoundError, RuntimeError) as error:
        print(f"simgpu {name}: {error}", file=sys.stderr)
        return 2


def _run(arguments):
    from simgpu.launcher.options import parser

    options = parser().parse_args(arguments)
    from simgpu.launcher.run import run

    return run(options)


def _smi(arguments):
    import simgpu
    from simgpu.launcher.options import add_machine, bytes_of, machine_of

    parser = argparse.ArgumentParser(prog="simgpu smi", description="The GPUs of a machine, as nvidia-smi shows them.")
    add_machine(parser)
    options = parser.parse_args(arguments)
    simgpu.enable(machine=machine_of(options), memory=bytes_of(options.memory))
    print(simgpu.smi())


def _machines(arguments):
    from simgpu.launcher.describe import machines

    argparse.ArgumentParser(prog="simgpu machines").parse_args(arguments)
    print(machines())


def _features(arguments):
    import simgpu

    argparse.ArgumentParser(prog="simgpu features").parse_args(arguments)
    print(simgpu.features())


def _doctor(arguments):
    from simgpu.launcher.describe import doctor

    argparse.ArgumentParser(prog="simgpu doctor").parse_args(arguments)
    text, fits = doctor()
    print(text)
    return 0 if fits else 1


_COMMANDS = {"run": _run, "smi": _smi, "machines": _machines, "features": _features, "doctor": _doctor}
