"""Tables of results: HTML in the page and in Jupyter, aligned text on a terminal."""

import re
from html import escape

_NUMBER = re.compile(r"[-+−]?\d\S*( [^\s\d]\S*)?( \(.*\))? *")  # with its unit, and a remark in brackets


class Shown:
    """What a notebook shows as HTML, and everything else as text."""

    def __init__(self, text, html):
        self.text, self.html = text, html

    def __repr__(self):
        return self.text

    def _repr_html_(self):
        return self.html


def table(headings, rows, caption=""):
    """Return a table that a notebook shows when it is a cell's last line, or is given to ``display``.

    A column of numbers, with units, dashes or empty cells among them or not, is aligned to the right.

    Args:
        headings: A string for each column.
        rows: For each row its cells, strings or anything that `str` turns into one; format numbers, with their unit in
            the heading or the cell.
        caption: Above the table.

    Raises:
        ValueError: A row has another number of cells.
    """
    headings, rows = list(map(str, headings)), [list(map(str, row)) for row in rows]
    for number, row in enumerate(rows):
        if len(row) != len(headings):
            raise ValueError(f"row {number}: expected {len(headings)} cells, one a heading, got {len(row)}")
    columns = list(zip(headings, *rows))
    filled = [[cell for cell in cells if cell.strip("–")] for _, *cells in columns]
    sides = ["right" if cells and all(map(_NUMBER.fullmatch, cells)) else "left" for cells in filled]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        [f"{cell:{'<>'[side == 'right']}{width}}" for cell, width, side in zip(row, widths, sides)]
        for row in (headings, *rows)
    ]
    text = "\n".join([caption] * bool(caption) + ["  ".join(line).rstrip() for line in lines])
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head, body = _row(headings, 'th scope="col"', sides), "".join(_row(row, "td", sides) for row in rows)
    return Shown(text, f'<table class="dataframe">{title}<thead>{head}</thead><tbody>{body}</tbody></table>')


def _row(cells, tag, sides):
    shown = (re.sub("^ +", lambda m: "&emsp;" * (len(m[0]) // 2), escape(cell)) for cell in cells)  # HTML drops blanks
    found = (f'<{tag} style="text-align: {side}">{cell}</{tag[:2]}>' for cell, side in zip(shown, sides))
    return f"<tr>{''.join(found)}</tr>"
