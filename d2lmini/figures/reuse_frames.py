"""Drawings of the tiled product and of the systolic array, for explorable figures: one SVG a frame, written by hand.

A figure of a hundred frames must stay small, so equal squares are one path and letters are text. The systolic array is
drawn from what its registers held in each cycle of a run.
"""

from functools import cache
from html import escape
from itertools import product

import numpy as np

from d2lmini.reuse import systolic

NOW, BEFORE, NEVER, LINE, INK = "#f4a259", "#cfe3f5", "#ffffff", "#8a8a8a", "#1a1a1a"
FONT = 'font-family="DejaVu Sans,Arial,sans-serif"'


class Sheet:
    """An SVG drawing of `width` × `height` pixels."""

    def __init__(self, width, height):
        self.size, self.parts = (width, height), []

    def squares(self, x, y, edge, places, fill):
        """Draw a square for each (row, column) of `places`; (0, 0) has its corner at (x, y)."""
        path = "".join(f"M{x + j * edge} {y + i * edge}h{edge}v{edge}h-{edge}z" for i, j in places)
        if path:
            self.parts.append(f'<path d="{path}" fill="{fill}" stroke="{LINE}"/>')

    def box(self, x, y, width, height, fill):
        """Draw a rectangle."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{LINE}"/>')

    def text(self, x, y, text, anchor="middle", bold=False):
        """Write a line; `anchor` says which of its points is at x: start, middle, end."""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x}" y="{y}" font-size="14" text-anchor="{anchor}"{weight}>{escape(text)}</text>')

    def _repr_svg_(self):
        width, height = self.size
        head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        return f'<svg {head} {FONT} fill="{INK}">{"".join(self.parts)}</svg>'


@cache
def _tile_steps(n, tile):
    """Return for each step of `tiled_product` the places in use, as {"A": …, "B": …, "C": …}."""
    tiles, depths = ([range(n)[i : i + edge] for i in range(0, n, edge)] for edge in (tile, n if tile == 1 else tile))
    return [
        {"A": list(product(rows, depth)), "B": list(product(depth, columns)), "C": list(product(rows, columns))}
        for rows in tiles
        for columns in tiles
        for depth in depths
    ]


def _tiling(n, tile, work):
    """Return the step that does multiplication number `work`, the steps before it, and the elements fetched."""
    before, done, reads = [], 0, 0
    for step in _tile_steps(n, tile):
        done += len(step["A"]) * len(step["B"]) // len({p for p, _ in step["B"]})
        reads += len(step["A"]) + len(step["B"])
        if done >= work:
            break
        before.append(step)
    return step, before, reads


def tiling(tile, multiplications, n=6):
    """Draw the n×n product in tiles, at one of its multiplications, as SVG.

    Orange: in use now. Blue: fetched before (A, B) or complete (C).

    Args:
        tile: Edge of a tile; 1 is the naive product.
        multiplications: The number of the one that is drawn.
        n: Edge of the matrices.
    """
    step, before, reads = _tiling(n, tile, multiplications)
    edge, gap, sheet = 22, 24, Sheet(320, 372)
    corner = {"A": (12, 28 + n * edge + gap), "B": (12 + n * edge + gap, 28)}
    corner["C"] = (corner["B"][0], corner["A"][1])
    everything = set(product(range(n), range(n)))
    for name, (x, y) in corner.items():
        now = set(step[name])
        old = {place for s in before for place in s[name]} - now
        for places, fill in ((everything - old - now, NEVER), (old, BEFORE), (now, NOW)):
            sheet.squares(x, y, edge, sorted(places), fill)
        sheet.text(x + n * edge / 2, y - 7, name, bold=True)
    sheet.text(12, 348, f"{multiplications} of {n**3} multiplications", anchor="start")
    sheet.text(12, 367, f"{reads} elements fetched so far", anchor="start")
    return sheet


def tiling_alt(tile, multiplications, n=6):
    """Say what `tiling` shows."""
    step, _, reads = _tiling(n, tile, multiplications)
    return (
        f"Product of {n} by {n} matrices, tile {tile}, at multiplication {multiplications} of {n**3}: in use are "
        f"{_span(step['A'])} of A and {_span(step['B'])} of B, for {_span(step['C'])} of C; "
        f"{reads} elements fetched so far"
    )


def _span(places):
    ends = [(min(axis), max(axis)) for axis in zip(*places)]
    rows, columns = (f"{low}" if low == high else f"{low} to {high}" for low, high in ends)
    return f"rows {rows}, columns {columns}"


@cache
def _snapshots(dataflow, n):
    """Return for each cycle of an n×n product on an n×n array what the registers hold, as codes and as term counts."""
    code = np.arange(1, n * n + 1).reshape(n, n)
    runs = []
    for A, B in ((code, code), (np.ones_like(code), np.ones_like(code))):
        states = []
        systolic.multiply(A, B, n, n, dataflow, lambda array, states=states: states.append(_state(array)))
        runs.append(states)
    return list(zip(*runs))


def _state(array):
    registers = {name: getattr(array, name).copy() for name in ("held", "spare", "right", "down")}
    return registers | {"products": array.products}


def _name(letter, code, n):
    return "" if np.ma.is_masked(code) else f"{letter}{(code - 1) // n}{(code - 1) % n}"


def _lines(dataflow, cycle, r, s, n):
    """Return what cell (r, s) has after this cycle: what it keeps, what moves right, what moves down."""
    codes, counts = _snapshots(dataflow, n)[cycle - 1]
    moving = _name("b" if dataflow == "input" else "a", codes["right"][r, s], n)
    if dataflow == "output":
        below = _name("b", codes["down"][r, s], n)
        return _sum_kept(counts, cycle, r, s, n), moving and f"{moving} →", below and f"↓ {below}"
    letter, sums = "a" if dataflow == "input" else "b", counts["down"][r, s]
    kept = _name(letter, codes["held"][r, s], n) or _name(letter, codes["spare"][r, s], n)
    if np.ma.is_masked(sums) or not moving:
        return kept, moving and f"{moving} →", ""
    name = f"c{s}{moving[2]}" if dataflow == "input" else f"c{moving[1]}{s}"
    return kept, f"{moving} →", f"↓ {name}: {sums}/{n}"


def _sum_kept(counts, cycle, r, s, n):
    """Return the sum in cell (r, s), growing or, once whole, on its way out: in column s from cycle 2n + s on."""
    if not np.ma.is_masked(counts["spare"][r, s]):
        return f"c{r - max(0, cycle - 2 * n - s)}{s}: {n}/{n} ↓"
    return "" if cycle > n + r + s else f"c{r}{s}: {counts['held'][r, s]}/{n}"


def _works(dataflow, cycle, r, s, n):
    codes, _ = _snapshots(dataflow, n)[cycle - 1]
    other = codes["down" if dataflow == "output" else "held"]
    return not (np.ma.is_masked(codes["right"][r, s]) or np.ma.is_masked(other[r, s]))


def _busy(dataflow, cycle, n):
    states = [codes for codes, _ in _snapshots(dataflow, n)]
    return states[cycle - 1]["products"] - (states[cycle - 2]["products"] if cycle > 1 else 0)


def _phase(dataflow, cycle, n):
    if dataflow == "output":
        return "moving the sums out" if cycle > 3 * n - 2 else "computing"
    return f"moving {'A' if dataflow == 'input' else 'B'} in" if cycle <= n else "computing"


def systolic_array(dataflow, cycle, n=3):
    """Draw the n×n array as it is after a cycle of an n×n product, as SVG. Orange: multiplied in this cycle.

    In each cell: what it keeps, what it hands on to the right, what it hands on downwards; "2/3" is a sum with two
    of its three terms.

    Args:
        dataflow: A name in `DATAFLOWS`.
        cycle: From 0.
        n: Edge of the array.
    """
    sheet, width, height = Sheet(324, 62 + 76 * n), 106, 76
    for r, s in product(range(n), range(n)):
        kept, right, down = _lines(dataflow, cycle, r, s, n)
        x, y = 3 + s * width, 4 + r * height
        sheet.box(x, y, width - 6, height - 6, NOW if _works(dataflow, cycle, r, s, n) else NEVER)
        for line, (text, bold) in enumerate(((kept, True), (right, False), (down, False))):
            if text:
                sheet.text(x + (width - 6) / 2, y + 19 + 22 * line, text, bold=bold)
    busy = _busy(dataflow, cycle, n)
    sheet.text(4, 22 + height * n, f"cycle {cycle}: {_phase(dataflow, cycle, n)}", anchor="start")
    sheet.text(4, 44 + height * n, f"{busy} of {n * n} cells multiply", anchor="start")
    return sheet


def systolic_alt(dataflow, cycle, n=3):
    """Say what `systolic_array` shows."""
    cells = []
    for r, s in product(range(n), range(n)):
        lines = [line for line in _lines(dataflow, cycle, r, s, n) if line]
        if lines:
            cells.append(f"cell {r},{s} {', '.join(lines)}")
    return (
        f"{dataflow}-stationary array after cycle {cycle}, {_phase(dataflow, cycle, n)}, "
        f"{_busy(dataflow, cycle, n)} of {n * n} cells multiply: {'; '.join(cells) or 'empty'}"
    )
