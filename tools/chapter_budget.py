"""How much a chapter asks of its reader: words, lines of code, tables, figures and questions, and the time they take.

    python tools/chapter_budget.py            prints a line for each chapter
    python tools/chapter_budget.py --write    writes the times into the front page's table

Exercises, their solutions and folds (dropdowns) are left out of the words; what an exercise has is left out of tables
and figures too. The time of a page is words ÷ 140 a minute, 6 s a visible line of code, and 2 minutes for each
question, table and figure.
"""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "index.ipynb"
FENCE = re.compile(r"(?ms)^ *(?P<marks>`{3,}|:{3,})\{?(?P<kind>[\w:-]*)\}?(?P<rest>.*?)^ *(?P=marks) *$")
APART = re.compile(r"exercise|solution|dropdown|code|math|figure|image|list-table")
ROW = re.compile(r"(?m)^\|[ :|-]+\|$")
FOLDED, LEFT_OUT = {"hide-input"}, {"remove-input", "remove-cell"}


@dataclass(frozen=True)
class Budget:
    """What one page has: words of prose, visible and folded lines of code, tables, figures, questions."""

    words: int = 0
    visible: int = 0
    folded: int = 0
    tables: int = 0
    figures: int = 0
    questions: int = 0

    @property
    def minutes(self):
        """The minutes of a first reading."""
        shown = self.tables + self.figures + self.questions
        return self.words / 140 + self.visible * 6 / 60 + 2 * shown

    @property
    def time(self):
        """The time as the front page states it, in steps of five minutes."""
        hours, minutes = divmod(5 * round(self.minutes / 5), 60)
        return " ".join([f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes))


LIMITS = Budget(words=3300, visible=350, folded=200, tables=10)


def words(text):
    """Return the number of words of a cell's prose: no code, no formulas, no folds, no table's rules."""
    text = FENCE.sub(lambda m: "" if APART.search(m["kind"] + m["rest"]) else m["rest"], text)
    text = re.sub(r"(?s)\$\$.*?\$\$|\$[^$]*\$|\{[a-z:]+\}|<[^>]*>", " ", text)
    return len(re.findall(r"\w[\w'’-]*", text))


def code_lines(cell):
    """Return the lines of a code cell that are not blank."""
    return sum(bool(line.strip()) for line in cell.source.splitlines())


def cells_outside_exercises(cells):
    """Yield the cells of a notebook that are not part of an exercise or its solution."""
    solution = False
    for cell in cells:
        start, end = (cell.source.rfind(f"{{solution-{mark}}}") for mark in ("start", "end"))
        exercise = any(tag.startswith("exercise-") for tag in cell.metadata.get("tags", []))
        if not exercise and not solution and start < 0:
            yield cell
        solution = start > end if max(start, end) >= 0 else solution


def measure(path):
    """Return the `Budget` of a notebook."""
    cells, found = nbformat.read(path, as_version=4).cells, Budget()
    outside = list(cells_outside_exercises(cells))
    for cell in cells:
        tags = set(cell.metadata.get("tags", []))
        if cell.cell_type == "code" and not tags & LEFT_OUT and not any("exercise-solution" in tag for tag in tags):
            lines = code_lines(cell)
            folded = bool(tags & FOLDED) or (cell not in outside and "exercise-starter" not in str(tags))
            visible = 0 if folded else lines
            found = replace(found, visible=found.visible + visible, folded=found.folded + lines - visible)
    for cell in outside:
        if cell.cell_type == "markdown":
            found = replace(
                found, words=found.words + words(cell.source), tables=found.tables + len(ROW.findall(cell.source))
            )
        elif cell.cell_type == "code" and "remove-cell" not in cell.metadata.get("tags", []):
            shown = "\n".join(str(dict(output.get("data", {}))) for output in cell.outputs)
            asks = "d2l-ask" in shown or "d2l-predict" in shown
            draws = any(mark in shown for mark in ("<svg", "<img", "d2l-explore", "image/png"))
            table = "<table" in shown and not asks and not draws
            found = replace(
                found, questions=found.questions + asks, figures=found.figures + draws, tables=found.tables + table
            )
    return found


def chapters():
    """Return the chapters' notebooks, sorted by name."""
    return sorted((ROOT / "chapters").glob("*.ipynb"))


def with_times(text):
    """Return the front page's text with each chapter's time in the last column of its row."""

    def row(match):
        return f"{match[1]} {measure(ROOT / 'chapters' / (match[2] + '.ipynb')).time} |"

    return re.sub(r"(?m)^(\| \{doc\}`chapters/([\w-]+)` \|[^|\n]*\|)[^|\n]*\|", row, text)


def main(arguments):
    """Print the budgets, or write the times; return the exit status."""
    if arguments == ["--write"]:
        index = nbformat.read(INDEX, as_version=4)
        for cell in index.cells:
            if cell.cell_type == "markdown":
                cell.source = with_times(cell.source)
        nbformat.write(index, INDEX)
        return 0
    for path in chapters():
        found = measure(path)
        over = [
            name for name in ("words", "visible", "folded", "tables") if getattr(found, name) > getattr(LIMITS, name)
        ]
        print(f"{path.stem:28} {found}  {found.time}{'  over: ' + ', '.join(over) if over else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
