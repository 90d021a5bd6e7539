"""The form in which notebooks are stored: the same notebook with the same outputs always gives the same file."""

import hashlib
import re

import nbformat

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
# What editors and clients leave in a cell's metadata: it changes from run to run and says nothing about the cell.
CELL_NOISE = {
    "ExecuteTime",
    "collapsed",
    "colab",
    "deletable",
    "editable",
    "execution",
    "id",
    "outputId",
    "pycharm",
    "scrolled",
    "trusted",
    "vscode",
}
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read(path):
    """Return the notebook at `path`; raise ValueError with one line if the file is not one."""
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, TypeError, AttributeError, KeyError, nbformat.ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is not a notebook ({type(error).__name__}: {reason})") from error


def dumps(nb):
    """Return the text of the file for a notebook in its stored form; raise ValueError if it would not be valid."""
    try:
        return nbformat.writes(nb, version=4) + "\n"
    except nbformat.ValidationError as error:
        raise ValueError(f"not a valid notebook: {error.message}") from error


def tidy(nb):
    """Bring a notebook into its stored form, in place; doing so again changes nothing."""
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.metadata = {key: value for key, value in nb.metadata.items() if key == "mystnb"}
    nb.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    # The book colours the code by this lexer, which knows %magics and !commands.
    nb.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    for cell, name in zip(nb.cells, cell_ids(nb.cells), strict=True):
        cell.id = name
        cell.metadata = {key: value for key, value in cell.metadata.items() if key not in CELL_NOISE}
        if cell.cell_type == "code":
            cell.outputs = tidy_outputs(cell.outputs)
    nb = nbformat.from_dict(nb)
    return nb


def cell_ids(cells):
    """Return an id for each cell, made from its text; equal cells are numbered in their order."""
    seen = {}
    names = []
    for cell in cells:
        digest = hashlib.sha256(f"{cell.cell_type}:{cell.source}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        names.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return names


def tidy_outputs(outputs):
    """Return the outputs with neighbouring streams merged, without live widgets and the machine's own paths."""
    tidied = []
    run = {}  # the streams since the last other output; the kernel sends the two in no particular order
    for output in outputs:
        if output.output_type == "stream":
            run.setdefault(output.name, []).append(output.text)
            continue
        tidied += merged(run)
        run = {}
        if output.output_type == "error":
            tidied.append({**output, "traceback": tidy_traceback(output.traceback)})
        elif output.data.keys() <= {WIDGET_VIEW, "text/plain"} and WIDGET_VIEW in output.data:
            continue  # a widget with no face for a page
        else:
            data = {kind: content for kind, content in output.data.items() if kind != WIDGET_VIEW}
            tidied.append({**output, "data": data})
    return [nbformat.from_dict(output) for output in tidied + merged(run)]


def merged(run):
    """Return one stream output for each name in `run`, a dict of lists of texts; stdout comes before stderr."""
    order = sorted(run, key=("stdout", "stderr").index)
    return [{"output_type": "stream", "name": name, "text": "".join(run[name])} for name in order]


def tidy_traceback(traceback):
    """Return a traceback's parts without colours and without the libraries' frames, which name the machine's paths."""
    plain = [ANSI.sub("", part) for part in traceback]
    return [part for part in plain if not part.startswith("File ")]
