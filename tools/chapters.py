"""Execute the chapters and store their outputs (`make chapters`); a second run changes nothing.

A cell tagged `nbval-ignore-output` shows what was measured on some machine. Its stored output stays as long as it is
about the same code: this cell and all code cells before it still have the id and the execution count of that run (ids
are made from a cell's text), and the new run gives outputs of the same kinds. `--fresh` stores the new ones.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import notebook_form
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from notebook_env import ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("index.ipynb", "chapters/*.ipynb", "reference/*.ipynb")
MEASURED = "nbval-ignore-output"


class ChapterError(Exception):
    """A notebook can't be executed; the message names it and the cell."""


def tagged(cell, tag):
    """Say whether a cell carries a tag."""
    return tag in cell.metadata.get("tags", [])


def execute(path, nb, timeout):
    """Execute a notebook in its folder, in place, in a kernel of its own; `timeout` is in seconds for each cell."""
    client = NotebookClient(
        nb,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--log-level=ERROR"],
    )
    with client.setup_kernel(env={**os.environ, **ENVIRONMENT}):
        for index, cell in enumerate(nb.cells):
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
                execute_cell(client, cell, index, f"{path.name}, cell {index + 1} of {len(nb.cells)}")


def execute_cell(client, cell, index, where):
    """Execute one cell; raise ChapterError, which begins with `where`, if it does not do what it should."""
    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        raise ChapterError(f"{where}: {error.ename}: {' '.join(error.evalue.split())}") from error
    except CellTimeoutError as error:
        raise ChapterError(f"{where}: did not finish within {client.timeout} s") from error
    except DeadKernelError as error:
        raise ChapterError(f"{where}: the kernel died (out of memory?)") from error
    raised = any(output.output_type == "error" for output in cell.outputs)
    if tagged(cell, "raises-exception") and not raised:
        raise ChapterError(f"{where}: is tagged raises-exception but raised nothing")


def kinds(outputs):
    """Return what kinds of outputs these are, without what is in them: types, stream names, MIME types."""
    return [(o.output_type, o.get("name"), o.get("ename"), sorted(o.get("data", {}))) for o in outputs]


def keep_measured(old, new):
    """Give the measured cells of `new`, a notebook just executed, their outputs in `old` that are still about them."""
    names = notebook_form.cell_ids(old.cells)
    count = 0
    for cell, name, fresh in zip(old.cells, names, new.cells, strict=True):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        count += 1
        if cell.id != name or cell.execution_count != count:
            return  # from here on the stored outputs are those of other code
        stored = notebook_form.tidy_outputs(cell.outputs)
        if tagged(cell, MEASURED) and kinds(stored) == kinds(fresh.outputs):
            fresh.outputs = stored


def update(path, timeout, fresh=False, check=False):
    """Execute and store one notebook; return whether its file changed, or with `check` whether it would."""
    text = path.read_text(encoding="utf-8")
    old, new = notebook_form.read(path), notebook_form.read(path)
    execute(path, new, timeout)
    new = notebook_form.tidy(new)
    if not fresh:
        keep_measured(old, new)
    stored = notebook_form.dumps(new)
    if stored == text:
        return False
    if not check:
        replace(path, stored)
    return True


def replace(path, text):
    """Write a file so that it is either the old or the new one, whatever happens in between."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def main(argv=None):
    """Update the notebooks named in `argv`, or all chapters; return the exit status."""
    parser = argparse.ArgumentParser(description="Execute notebooks and store their outputs.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of the book")
    parser.add_argument("--fresh", action="store_true", help="also store new outputs of the cells that measure")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    parser.add_argument("--timeout", type=int, default=300, metavar="SECONDS", help="for each cell (default: 300)")
    options = parser.parse_args(argv)
    status = 0
    for path in options.notebooks or [path for place in PLACES for path in sorted(ROOT.glob(place))]:
        try:
            changed = update(path.resolve(), options.timeout, options.fresh, options.check)
        except (ChapterError, OSError, ValueError, RuntimeError) as error:
            print(f"{error}; {path.name} was left as it is", file=sys.stderr)
            status = 1
            continue
        print(f"{path.name}: {('would change' if options.check else 'stored') if changed else 'unchanged'}", flush=True)
        status |= options.check and changed
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
