"""Notebooks made for running, in `_build/notebooks/`: the chapters in plain Markdown, at home wherever Jupyter's are.

Run alone (`make lab` does) or as a Sphinx extension, which also puts them behind each page's download button. Roles are
links, an exercise has its title and number, and its solution unfolds at a click. Cells that only check the book are
left out, but for what later ones need; set-up and drawing cells are collapsed. Outputs are the stored ones.
"""

import hashlib
import json
import re
import shutil
import sys
from pathlib import Path

import nbformat
import notebook_form
from book_names import ROOT, Names, PlainError, repository, toc
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from needed import needed
from plain_markdown import Plain, fold

MADE = ROOT / "_build" / "notebooks"
BESIDE = ("chapters/data", "chapters/results", "benchmarks")  # what cells read
EDGE = re.compile(r"(?ms)^(`{3,}|:{3,})\{solution-(start|end)\} *(\S*)[^\n]*\n.*?^\1 *$\n?")
COLLAPSED = {"hide-input", "remove-input", "hide-cell"}
INSTALL = """\
# On Colab or Binder this installs the book's packages; where they are installed, it does nothing.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("d2lmini") is None:
    if not os.path.isdir("book"):
        subprocess.run(["git", "clone", "-q", "--depth=1", "{address}", "book"], check=True)
    packages = ["./book/simgpu", "./book[book,memory]"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *packages], check=True)
    importlib.invalidate_caches()
if os.path.isdir("{folder}"):
    os.chdir("{folder}")  # beside the data that the cells read"""
MISSING = """\
# Outside the book's own environment, install its packages first: this says where they are missing.
import importlib.util

if importlib.util.find_spec("d2lmini") is None:
    raise ModuleNotFoundError("d2lmini is not installed: run `make lab` in the book's folder")"""


def parts(cells):
    """Yield (cell or piece of text, label of the solution that it belongs to or None) of a chapter, in order."""
    inside = None
    for cell in cells:
        if cell.cell_type != "markdown":
            yield cell, inside
            continue
        at = 0
        for edge in EDGE.finditer(cell.source):
            yield cell.source[at : edge.start()], inside
            inside, at = (edge[3] if edge[2] == "start" else None), edge.end()
        yield cell.source[at:], inside
    if inside:
        raise PlainError(f"nothing ends the solution of {inside!r}")


def make(page, names):
    """Return the notebook made for running of a page such as 'chapters/devices'; raises PlainError."""
    plain, cells = Plain(page, names), nbformat.read(ROOT / f"{page}.ipynb", as_version=4).cells
    found = [(piece, inside) for piece, inside in parts(cells) if not isinstance(piece, str) or piece.strip()]
    code = [(piece, inside) for piece, inside in found if not isinstance(piece, str)]
    left_out = [(cell.source, bool(inside) or "remove-cell" in tags(cell)) for cell, inside in code]
    kept = dict(zip((id(cell) for cell, _ in code), needed(left_out)))
    made, solution, label = [first_cell(page)], [], None
    for piece, inside in [*found, ("", None)]:
        if inside != label and label:
            title = names.label(label, page)[2]
            made.append(text_cell(fold(f"Solution to {title}", "\n\n".join(solution)), plain))
            solution = []
        label = inside
        if isinstance(piece, str):
            text = plain.text(piece.strip("\n"))
            if inside:
                solution.append(text)
            elif text:
                made.append(text_cell(text, plain))
        elif inside and "remove-cell" not in tags(piece):
            if kept[id(piece)]:
                raise PlainError(f"{page}: a later cell needs {kept[id(piece)]!r}, from the solution of {inside}")
            solution += as_text(piece)
        elif not inside and "remove-cell" not in tags(piece):
            made.append(running(piece))
        elif kept[id(piece)]:
            made.append(new_code_cell(kept[id(piece)], metadata=hidden({})))
    return finished(made)


def tags(cell):
    """Return a cell's tags."""
    return cell.metadata.get("tags", [])


def hidden(metadata):
    """Return the metadata of a cell whose code is collapsed."""
    return {**metadata, "jupyter": {"source_hidden": True}}


def running(cell):
    """Return a chapter's code cell as it stands in the notebook: collapsed where the page shows no code."""
    metadata = {"tags": list(tags(cell))} if tags(cell) else {}
    metadata = hidden(metadata) if COLLAPSED & set(tags(cell)) else metadata
    for output in cell.outputs:
        if "execution_count" in output:
            output.execution_count = None
    return new_code_cell(cell.source, metadata=metadata, outputs=cell.outputs)


def text_cell(text, plain):
    """Return a text cell with the pictures that its text shows."""
    cell = new_markdown_cell(text)
    shown = {name: data for name, data in plain.attachments.items() if f"(attachment:{name})" in text}
    if shown:
        cell.attachments = shown
    return cell


def as_text(cell):
    """Return a solution's cell as Markdown: its code, then what it put out."""
    found = [f"```python\n{cell.source}\n```"]
    for output in cell.outputs:
        data = output.get("data", {})
        if re.match(r"\s*<(table|img)\b", data.get("text/html", "")):
            found.append(re.sub(r"\n\s*\n", "\n", data["text/html"]))
        elif text := output.get("text") or data.get("text/plain"):
            found.append(f"```text\n{text.rstrip()}\n```")
    return found


def first_cell(page):
    """Return the cell that installs what is missing, from the repository whose workflow builds the book."""
    folder = f"book/{page}".rpartition("/")[0]
    source = INSTALL.format(address=repository(), folder=folder) if repository() else MISSING
    return new_code_cell(source, metadata=hidden({}))


def finished(cells):
    """Return the notebook of these cells; the same cells give the same file."""
    nb = new_notebook(cells=cells)
    nb.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell, name in zip(nb.cells, notebook_form.cell_ids(nb.cells)):
        cell.id = name
    nbformat.validate(nb)
    return nb


def pages():
    """Return the names of the book's notebooks, in the order of its contents."""
    return [page for page in toc() if (ROOT / f"{page}.ipynb").is_file()]


def store(folder, texts):
    """Write the notebooks' texts, by name, below a folder.

    What a reader has changed there stays, until the chapter itself has changed: then it is kept beside, as NAME-mine.
    """
    record = folder / ".made.json"
    before = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    digests = {page: hashlib.sha256(text.encode()).hexdigest() for page, text in texts.items()}
    for page, text in texts.items():
        path = folder / f"{page}.ipynb"
        if path.is_file() and before.get(page) == digests[page]:
            continue
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != before.get(page):
            number = 1 + len(list(path.parent.glob(f"{path.stem}-mine*.ipynb")))
            path.rename(path.with_name(f"{path.stem}-mine{number if number > 1 else ''}.ipynb"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    record.write_text(json.dumps(digests, indent=1), encoding="utf-8")
    for name in BESIDE:
        unwanted = shutil.ignore_patterns("__pycache__", ".*", "*.ipynb")
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True, ignore=unwanted)


def texts():
    """Return the text of each notebook's file by page; raises PlainError."""
    names = Names()
    return {page: notebook_form.dumps(make(page, names)) for page in pages()}


def offer(app, exception):
    """Make the notebooks after the book is built, and put them behind the pages' download buttons."""
    if exception or app.builder.format != "html":
        return
    made = texts()
    store(MADE, made)
    for page, text in made.items():
        download = Path(app.outdir) / "_sources" / f"{page}.ipynb"
        if download.is_file():
            download.write_text(text, encoding="utf-8", newline="\n")


def setup(app):
    """Register with Sphinx."""
    app.connect("build-finished", offer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    try:
        store(MADE, texts())
    except PlainError as error:
        sys.exit(str(error))
