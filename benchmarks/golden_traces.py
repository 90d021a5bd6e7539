"""What the simulated clocks of each notebook do, cell by cell, compared with benchmarks/golden_traces.json.

    python benchmarks/golden_traces.py                             # all notebooks; exits 1 where a cell differs
    python benchmarks/golden_traces.py chapters/transfers.ipynb    # some
    python benchmarks/golden_traces.py --at COMMIT                 # those of a commit, on the simulator here
    python benchmarks/golden_traces.py --record                    # writes the file

Of each cell that uses a clock are kept: how many spans of each kind all clocks queued, traced or not, their picoseconds
in all, and a hash of all spans; how often a clock was read, and a hash of what it said. What comes after a cell that
was changed may differ because of it, until the next `simgpu.enable`.
"""

import argparse
import difflib
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "benchmarks" / "golden_traces.json"
PLACES = ("index.ipynb", "chapters/*.ipynb", "reference/*.ipynb")
PS = 10**12
TABLE = "GOLDEN_TRACES"  # the environment's variable that names the file for a kernel's table


# -- inside the notebook's kernel ------------------------------------------------------------------------------------


def watch(shell):
    """Trace every clock made from now on; when a cell of `shell` has run, write down what the clocks did in it."""
    traces, readings, table = [], [], []
    made, now = simgpu.Clock.__init__, simgpu.Clock.now

    def make(clock, *args, **options):
        made(clock, *args, **options)
        traces.append(clock.trace().__enter__())

    def read(clock):
        seconds = now(clock)
        readings.append(seconds)
        return seconds

    def note(result):
        spans = [span for trace in traces for span in trace.spans]
        if spans or readings:
            table.append([digest(result.info.raw_cell), told(spans, readings)])
            Path(os.environ[TABLE]).write_text(json.dumps(table), encoding="utf-8")
        for past in (readings, *(trace.spans for trace in traces)):
            past.clear()

    simgpu.Clock.__init__, simgpu.Clock.now = make, read
    shell.events.register("post_run_cell", note)


def told(spans, readings):
    """Return how many spans of each kind there are, and their picoseconds; how many readings; and hashes of both."""
    rows, found = [], defaultdict(lambda: [0, 0])
    for span in spans:
        start, end = round(span.start_s * PS), round(span.end_s * PS)
        found[span.kind][0] += 1
        found[span.kind][1] += end - start
        rows.append((span.name, span.place, span.kind, start, end, span.nbytes))
    told = dict(sorted(found.items()))
    return {**told, "spans": digest(sorted(rows)), "readings": [len(readings), digest(sorted(readings))]}


def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


# -- outside ---------------------------------------------------------------------------------------------------------


def table_of(path, at):
    """Execute a notebook, as it was at the commit `at` where that is given; return [cell, what it did] of each cell."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text("utf-8") if not at else subprocess.check_output(["git", "show", f"{at}:{name}"], text=True)
    notebook = nbformat.reads(text, as_version=4)
    numbers = {digest(cell.source): number for number, cell in enumerate(notebook.cells, 1)}
    start = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]; import golden_traces\n"
    start += "golden_traces.watch(get_ipython()); del sys.path[:2], golden_traces, sys"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(start))
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table.json")
        os.environ[TABLE] = str(table)
        chapters.execute(path, notebook, timeout=1200)
        rows = json.loads(table.read_text("utf-8")) if table.exists() else []
    return [[numbers[key], told] for key, told in rows]


def differences(wanted, found):
    """Yield a line for each cell that did something else, or that is new or gone."""
    texts = [[json.dumps(told, sort_keys=True) for _, told in rows] for rows in (wanted, found)]
    for same, a, b, c, d in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        for old, new in itertools.zip_longest(wanted[a:b], found[c:d]) if same != "equal" else ():
            if not old or not new:
                yield f"cell {(old or new)[0]} is {'new' if new else 'gone, or uses no clock'}"
                continue
            keys = [key for key in sorted({*old[1], *new[1]}) if old[1].get(key) != new[1].get(key)]
            parts = [f"{key} was {old[1].get(key)}, is {new[1].get(key)}" for key in keys]
            yield f"cell {new[0]} (was {old[0]}): {'; '.join(parts)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--record", action="store_true", help="write the file")
    parser.add_argument("--at", help="a commit whose notebooks are executed")
    options = parser.parse_args()
    golden = json.loads(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else {}
    status = 0
    for path in options.notebooks or [path for place in PLACES for path in sorted(ROOT.glob(place))]:
        name = path.resolve().relative_to(ROOT).as_posix()
        try:
            found = table_of(path.resolve(), options.at)
        except chapters.ChapterError as error:
            status = 1
            print(f"{name}: {error}", flush=True)
            continue
        lines = list(differences(golden.get(name, []), found))
        status |= bool(lines)
        print(f"{name}: {len(found)} cells {'different' if lines else 'the same'}", *lines, sep="\n  ", flush=True)
        golden[name] = found
        if options.record:
            text = ",\n".join(f"{json.dumps(n)}: [\n{_rows(rows)}]" for n, rows in sorted(golden.items()))
            GOLDEN.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    return status if not options.record else 0


def _rows(rows):
    return ",\n".join(f"  {json.dumps(row)}" for row in rows)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tools"))
    import nbformat

    import chapters

    sys.exit(main())
else:
    import simgpu
