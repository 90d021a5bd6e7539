"""Every exercise of a chapter is proven: its starter fails, its solution passes, and wrong answers are rejected.

An exercise NAME is a markdown cell with an {exercise} directive labelled ``exercise-NAME`` and two code cells, tagged
``exercise-starter-NAME`` and ``exercise-solution-NAME``. Both run on their own, without the cells before them, and end
in a line that calls ``checks.NAME``. Wrong answers stand in tests/mutants/NAME.py, both with underscores for hyphens:
EDITS of the solution's text, and functions that replace the solution's and say in their docstring what is wrong.
"""

import ast
import io
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from d2lmini import checks
from d2lmini.checks import mechanism

ROOT = Path(__file__).parents[2]
MUTANTS = ROOT / "tests" / "mutants"
FEWEST_MUTANTS = 4
TAG = re.compile(r"exercise-(starter|solution)-([a-zA-Z0-9-]+)")


def exercises_of(chapter):
    """Return {name: exercise} of a notebook; an exercise has the notebook's cells and the places of its two halves."""
    cells = nbformat.read(chapter, as_version=4).cells
    found = {}
    for place, cell in enumerate(cells):
        for half, name in filter(None, (match and match.groups() for match in map(TAG.fullmatch, _tags(cell)))):
            exercise = found.setdefault(name, SimpleNamespace(name=name, cells=cells, starter=[], solution=[]))
            exercise.stem = name.replace("-", "_")
            getattr(exercise, half).append(place)
    return found


def faults_of(exercise, folder):
    """Yield in words what is wrong with an exercise whose mutants lie in `folder`."""
    if len(exercise.starter) != 1 or len(exercise.solution) != 1 or exercise.starter > exercise.solution:
        yield f"expected one starter cell and then one solution cell, got cells {exercise.starter}, {exercise.solution}"
        return
    (starter,), (solution,) = exercise.starter, exercise.solution
    yield from _faults_of_text(exercise, starter, solution)
    for half, place, mark in (("starter", starter, "✗"), ("solution", solution, "✓")):
        if not exercise.cells[place].source.rpartition("\n")[2].startswith(f"checks.{exercise.stem}("):
            yield f"the {half}'s last line does not call its check"
        yield from _faults_of_output(half, exercise.cells[place], mark)
    yield from _faults_of_mutants(exercise.cells[solution].source, folder / f"{exercise.stem}.py")


def _tags(cell):
    return cell.metadata.get("tags", [])


def _faults_of_text(exercise, starter, solution):
    """The exercise is asked before the starter; start and end of the solution enclose nothing but the solution."""
    text = [cell.source if cell.cell_type == "markdown" else "" for cell in exercise.cells]
    label = rf"exercise-{exercise.name}\s*$"
    if not any(re.search(rf"^`+\{{exercise\}}.*\n(:.*\n)*:label: {label}", t, re.MULTILINE) for t in text[:starter]):
        yield f"no {{exercise}} directive labelled exercise-{exercise.name} before the starter"
    between = "\n".join(text[starter:solution])
    if not re.search(rf"^`+\{{solution-start\}} {label}\n(:.*\n)*:class: dropdown", between, re.MULTILINE):
        yield f"no {{solution-start}} exercise-{exercise.name} with :class: dropdown between starter and solution"
    if not any("{solution-end}" in t for t in text[solution : solution + 2]):
        yield "no {solution-end} in the cell after the solution"


def _faults_of_output(half, cell, mark):
    printed = run(cell.source)
    if not printed.startswith(mark):
        yield f"the {half} should print {mark}, it printed {printed.strip()!r}"
    stored = "".join(output.get("text", "") for output in cell.outputs)
    if not stored.startswith(mark):
        yield f"the {half}'s stored output should begin with {mark}, it is {stored.strip()!r}"


def _faults_of_mutants(solution, file):
    if not file.exists():
        yield f"no mutants: expected {file.parent.name}/{file.name}"
        return
    edits, functions = runpy.run_path(str(file)).get("EDITS", []), _functions(file.read_text(encoding="utf-8"))
    if len(edits) + len(functions) < FEWEST_MUTANTS:
        yield f"expected at least {FEWEST_MUTANTS} mutants, got {len(edits) + len(functions)}"
    answer, _, call = solution.rpartition("\n")
    sources = [(what, solution.replace(old, new)) for what, old, new in edits if solution.count(old) == 1]
    sources += [(what, f"{answer}\n{function}\n{call}") for what, function in functions]
    for what, old, _ in edits:
        if solution.count(old) != 1:
            yield f"mutant {what!r}: its text {old!r} stands {solution.count(old)} times in the solution, not once"
    for what, source in sources:
        printed = run(source)
        if not printed.startswith("✗") or "NameError" in printed:  # a slip of the mutant's author proves nothing
            yield f"mutant {what!r} should be rejected for its answer, the check printed {printed.strip()!r}"


def _functions(text):
    """Return the functions of a file as (what their docstring says, source)."""
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return [(ast.get_docstring(node), ast.get_source_segment(text, node)) for node in nodes]


def run(source):
    """Run a cell by itself and return what it printed, and the error if it raised one."""
    with redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(source, "<cell>", "exec"), {"__name__": "__main__"})
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()


CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
EXERCISES = [exercise for chapter in CHAPTERS for exercise in exercises_of(chapter).values()]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_exercise_is_proven(exercise):
    assert list(faults_of(exercise, MUTANTS)) == []


def test_exercises_mutants_and_checks_belong_together():
    names = sorted(exercise.name for exercise in EXERCISES)
    assert names == sorted(file.stem.replace("_", "-") for file in MUTANTS.glob("*.py")), "each exercise has mutants"
    assert names == sorted(checks.CHECKS), "each exercise has a check"


# From here on the proofs themselves are tested, on a small exercise in a notebook of its own.

CELLS = {
    "question": "## Exercises\n\n```{exercise} Twice\n:label: exercise-twice-two\n\nDouble it.\n```",
    "starter": "from d2lmini import checks\n\ndef twice(x):\n    return x\n\nchecks.twice_two(twice)",
    "start": "Before.\n\n```{solution-start} exercise-twice-two\n:class: dropdown\n```",
    "solution": "from d2lmini import checks\n\ndef twice(x):\n    return 2 * x\n\nchecks.twice_two(twice)",
    "end": "```{solution-end}\n```",
}
FILE = '''
EDITS = [("three times", "2 *", "3 *"), ("squared", "2 * x", "x ** 2"), ("nothing comes back", "return", "")]

def twice(x):
    """Always four."""
    return 4
'''


@pytest.fixture
def faults_with(tmp_path, monkeypatch):
    """Return a function that writes the small exercise, some cells changed or left out (None), and finds faults."""

    def twice_two(function):
        for x in (2, 5):
            if checks.attempt(function, x, given=f"x = {x}") != 2 * x:
                raise checks.Wrong(f"x = {x}: expected {2 * x}")
        return "2 x"

    monkeypatch.setattr(mechanism, "CHECKS", {})
    monkeypatch.setattr(checks, "twice_two", checks.check(twice_two), raising=False)

    def faults(mutants=FILE, outputs=("✗ twice_two: x", "✓ twice_two: 2 x"), **changed):
        cells = []
        for half, source in (CELLS | changed).items():
            if source is not None and half in ("starter", "solution"):
                output = nbformat.v4.new_output("stream", text=outputs[half == "solution"])
                metadata = {"tags": [f"exercise-{half}-twice-two"]}
                cells.append(nbformat.v4.new_code_cell(source, outputs=[output], metadata=metadata))
            elif source is not None:
                cells.append(nbformat.v4.new_markdown_cell(source))
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "chapter.ipynb")
        if mutants:
            (tmp_path / "twice_two.py").write_text(mutants)
        (exercise,) = exercises_of(tmp_path / "chapter.ipynb").values()
        return list(faults_of(exercise, tmp_path))

    return faults


def test_good_exercise_has_no_fault(faults_with):
    assert faults_with() == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"question": "Double it."}, "no {exercise} directive labelled exercise-twice-two"),
        ({"start": "```{solution-start} exercise-twice-two\n```"}, "no {solution-start} exercise-twice-two with"),
        ({"starter": CELLS["solution"]}, "the starter should print ✗, it printed '✓ twice_two: 2 x'"),
        (
            {"solution": CELLS["solution"].replace("2 *", "-2 *"), "mutants": FILE.replace("2 *", "-2 *")},
            "the solution should print ✓",
        ),
        ({"solution": CELLS["solution"] + "\npass"}, "the solution's last line does not call its check"),
        ({"outputs": ("✓ twice_two: 2 x", "✓ twice_two: 2 x")}, "the starter's stored output should begin with ✗"),
        ({"mutants": None}, "no mutants: expected"),
        ({"mutants": FILE.replace('"2 *"', '"7 *"')}, "'three times': its text '7 *' stands 0 times in the solution"),
        ({"mutants": FILE.replace("x ** 2", "x + x")}, "'squared' should be rejected for its answer"),
        ({"mutants": FILE.replace("x ** 2", "x + z")}, "'squared' should be rejected for its answer"),
        ({"mutants": FILE.partition("def")[0]}, "expected at least 4 mutants, got 3"),
    ],
)
def test_fault_is_named(faults_with, changed, fault):
    assert fault in " | ".join(faults_with(**changed))
