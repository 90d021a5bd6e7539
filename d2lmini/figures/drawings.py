"""Drawings that explain: hand-made SVG files, shown inside the page so that they take its colours, light or dark.

A drawing is a file `drawings/NAME.svg` beside this module: at most 480 units wide, letters of at least 13 units, so
that they measure 9 pixels on a phone of 390. Its shapes have the classes of `STYLE` in place of colours of their own.
"""

import re
from html import escape
from pathlib import Path

from d2lmini.figures.tables import Shown

FOLDER = Path(__file__).parent / "drawings"
WIDEST, SMALLEST = 480, 13
STYLE = """
.d2l-drawing { display: block; width: 100%; max-width: 40rem; margin: 0.5rem auto; color: inherit }
.d2l-drawing text { fill: currentColor; font: 14px system-ui, sans-serif }
.d2l-drawing text.small { font-size: 13px }
.d2l-drawing text.bold { font-weight: 600 }
.d2l-drawing text.middle { text-anchor: middle }
.d2l-drawing text.end { text-anchor: end }
.d2l-drawing .box { fill: none; stroke: currentColor; stroke-width: 1.5 }
.d2l-drawing .line { fill: none; stroke: currentColor; stroke-width: 1.5 }
.d2l-drawing .dashed { stroke-dasharray: 5 4 }
.d2l-drawing .host { fill: #8888881f; stroke: #888888; stroke-width: 1.5 }
.d2l-drawing .gpu { fill: #2e86c12e; stroke: #2e86c1; stroke-width: 1.5 }
.d2l-drawing .copy { fill: #d9822b33; stroke: #d9822b; stroke-width: 1.5 }
.d2l-drawing .message { fill: #9b59b633; stroke: #9b59b6; stroke-width: 1.5 }
.d2l-drawing .memory { fill: #2ea06a2e; stroke: #2ea06a; stroke-width: 1.5 }
.d2l-drawing .lost { fill: #d6453d2e; stroke: #d6453d; stroke-width: 1.5 }
"""
ARROW = (
    '<defs><marker id="{id}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="currentColor"/></marker></defs>'
)


def drawing(name: str, alt: str) -> Shown:
    """Return a drawing that a notebook shows when it is a cell's last line.

    Args:
        name: that of a file in `drawings`, without its ending. In it `url(#arrow)` is an arrow's head, for
            `marker-end` and `marker-start`.
        alt: what it shows, in words, for those who do not see it.

    Raises:
        ValueError: there is no such drawing; the line names those that there are.
    """
    path = FOLDER / f"{name}.svg"
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.svg")))
        raise ValueError(f"expected the name of a drawing ({known}), got {name!r}")
    svg = re.sub(r">\s+<", "><", path.read_text(encoding="utf-8").strip())
    head = re.match(r"<svg[^>]*>", svg)[0]
    arrow = f"arrow-{name}"  # an id is one in the whole page
    opening = f'{head[:-1]} class="d2l-drawing" role="img" aria-label="{escape(alt)}">'
    body = ARROW.format(id=arrow) + svg[len(head) :].replace("#arrow", f"#{arrow}")
    return Shown(alt, f"<style>{re.sub(chr(10), '', STYLE)}</style>{opening}{body}")
