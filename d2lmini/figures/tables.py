"""Tables of results: HTML in the page and in Jupyter, aligned text on a terminal."""

import re
from html import escape

_NUMBER = re.compile(r"[-+−]?\d")


def table(headings, rows, caption=""):
    """Return a table that a notebook shows when it is a cell's last line, or is given to ``display``.

    headings: a string for each column. rows: for each row its cells, strings or anything that `str` turns into one;
    format numbers, with their unit in the heading or the cell. A column in which every cell begins with a number is
    aligned to the right. Raises ValueError for a row with more or fewer cells than there are headings.
    """
    return Table(headings, rows, caption)


class Table:
    """What `table` returns; `str` gives the text, and a notebook asks for the HTML."""

    def __init__(self, headings, rows, caption=""):
        self.headings, self.caption = [str(heading) for heading in headings], caption
        self.rows = [[str(cell) for cell in row] for row in rows]
        for number, row in enumerate(self.rows):
            if len(row) != len(self.headings):
                raise ValueError(f"row {number}: expected {len(self.headings)} cells, one a heading, got {len(row)}")
        columns = zip(*self.rows) if self.rows else [()] * len(self.headings)
        self.right = [bool(column) and all(map(_NUMBER.match, column)) for column in columns]

    def __repr__(self):
        lines = [self.headings, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines)]
        text = ["  ".join(map(_align, line, widths, self.right)).rstrip() for line in lines]
        return "\n".join([*([self.caption] if self.caption else []), *text])

    def _repr_html_(self):
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        head = self._row(self.headings, 'th scope="col"')
        body = "".join(self._row(cells, "td") for cells in self.rows)
        return f'<table class="dataframe">{caption}<thead>{head}</thead><tbody>{body}</tbody></table>'

    def _row(self, cells, tag):
        ends = ("right" if right else "left" for right in self.right)
        found = (f'<{tag} style="text-align: {end}">{escape(cell)}</{tag[:2]}>' for cell, end in zip(cells, ends))
        return f"<tr>{''.join(found)}</tr>"


def _align(cell, width, right):
    return cell.rjust(width) if right else cell.ljust(width)
