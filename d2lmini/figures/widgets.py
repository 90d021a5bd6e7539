"""Explorable figures: a function that draws, and the values to try, become a figure with controls.

    explore(draw, batch_size=choice([1, 16, 256], unit="images"), devices=range(1, 5))

The object has two faces. In a page it is HTML that holds every frame, drawn in advance, and a slider that shows one of
them: no library, no network, no kernel. In Jupyter it is ipywidgets, and `draw` runs anew at each change.

A frame is an <img> with its SVG in the address: inline SVGs would share ids, and a browser ignores clip paths and
glyphs whose first owner is hidden. The address is escaped, not base64: frames repeat each other's letters, and as
text they compress to a twentieth in git and on the way to the reader.
"""

import hashlib
import inspect
import itertools
import json
import math
import string
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from html import escape
from pathlib import Path

from d2lmini.figures.plots import image, in_notebook, svg

MAX_FRAMES = 200
MAX_BYTES = 1_000_000  # of HTML, in the notebook and in the page


class choice:
    """The values of an argument of a figure, and how they are shown.

    Args:
        values: A list, tuple, range or array of one dimension.
        label: Of the control; by default the argument's name.
        unit: Of the values.
        start: The value to begin with; by default the first.

    Attributes:
        start: The index of the value to begin with.
        texts: Each value as the reader sees it, with its unit.
        ordered: Whether a slider fits, for text and on/off have no order.

    Raises:
        ValueError: `values` is none of these or is empty, or `start` is not in it.
    """

    def __init__(self, values, *, label=None, unit="", start=None):
        values = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f"expected a list of values to choose from, got {values!r}")
        if not values:
            raise ValueError("expected at least one value to choose from, got none")
        if start is not None and start not in values:
            raise ValueError(f"expected the start {start!r} to be among the values {list(values)}")
        self.values, self.label, self.start = tuple(values), label, 0 if start is None else values.index(start)
        self.texts = [f"{_text(value)} {unit}".strip() for value in values]
        self.ordered = not any(isinstance(value, (str, bool)) for value in values)


class explore:
    """A figure that the reader explores: one control for each argument, a frame for each combination of values.

    It shows itself as HTML in a page and as widgets in Jupyter. Frames are drawn when first needed: in a notebook at
    once, so that the cell shows the error.

    Args:
        draw: ``draw(**values)`` returns a matplotlib figure, an object with ``_repr_svg_`` or ``_repr_html_``, or text.
        alt: Describes the picture to those who do not see it: a sentence, or a function of the same arguments that
            returns one.
        choices: For each argument of `draw` a list of values or a `choice`.

    Raises:
        ValueError: The choices do not fit `draw`, there are more than MAX_FRAMES combinations or MAX_BYTES of HTML, or
            `draw` fails.
    """

    def __init__(self, draw, *, alt=None, **choices):
        self.name, self.draw, self.alt = getattr(draw, "__name__", "draw"), draw, alt
        self.choices = {name: _named(name, values) for name, values in choices.items()}
        _check_arguments(self.name, draw, self.choices)
        count = math.prod(len(c.values) for c in self.choices.values())
        if count > MAX_FRAMES:
            raise ValueError(f"{self.name}: {count} combinations of values, at most {MAX_FRAMES}: offer fewer values")
        if in_notebook():
            self._repr_html_()

    def __repr__(self):
        counts = ", ".join(f"{c.label} ({len(c.values)} values)" for c in self.choices.values())
        return f"<explorable figure {self.name}: {counts}>"

    def _repr_html_(self):
        return self._page

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if in_notebook():
            view = self.live()._repr_mimebundle_()
            bundle.update({kind: data for kind, data in view.items() if kind != "text/plain"})
        return bundle

    def live(self):
        """Return the figure as ipywidgets, which call `draw` at each change; an error appears in the figure's place."""
        import ipywidgets

        picture = ipywidgets.HTML()
        controls = [_live_control(ipywidgets, c) for c in self.choices.values()]

        def refresh(change=None):
            try:
                frame = self.frame([control.index for control in controls])
            except ValueError as error:
                frame = escape(str(error))
            picture.value = f'<div style="background: white; color: black; padding: .5em">{frame}</div>'

        for control in controls:
            control.observe(refresh, "index")
        refresh()
        return ipywidgets.VBox([*controls, picture])

    def frame(self, indices):
        """Draw one frame, with ``indices[i]`` pointing into the values of choice i, and return it as HTML."""
        values = {name: c.values[i] for (name, c), i in zip(self.choices.items(), indices, strict=True)}
        chosen = ", ".join(f"{c.label} {c.texts[i]}" for c, i in zip(self.choices.values(), indices, strict=True))
        try:
            alt = self.alt(**values) if callable(self.alt) else f"{self.alt or self.name.replace('_', ' ')}: {chosen}"
            return _as_html(self.draw(**values), alt)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ValueError(f"{self.name} failed at {chosen}: {reason}") from error

    @cached_property
    def _page(self):
        starts = tuple(c.start for c in self.choices.values())
        everything = list(itertools.product(*(range(len(c.values)) for c in self.choices.values())))
        frames, size = [], 0
        for indices in everything:
            frames.append(f"<div{'' if indices == starts else ' hidden'}>{self.frame(indices)}</div>")
            size += len(frames[-1].encode())
            if size > MAX_BYTES:
                raise ValueError(
                    f"{self.name}: {len(frames)} of {len(everything)} frames already take {size:,} bytes, "
                    f"at most {MAX_BYTES:,}: offer fewer values or draw less"
                )
        content = repr([(c.label, c.texts, c.start) for c in self.choices.values()]) + "".join(frames)
        key = hashlib.sha256(content.encode()).hexdigest()[:10]  # the same on every run: notebooks are compared
        controls = [_control(f"explore-{key}-{name}", c) for name, c in self.choices.items()]
        template = string.Template(Path(__file__).with_name("widgets.html").read_text(encoding="utf-8"))
        return template.substitute(key=key, controls="\n".join(controls), frames="\n".join(frames))


def _named(name, values):
    """Return a choice that has a label, and name the argument when its values are of no use."""
    try:
        given = copy(values) if isinstance(values, choice) else choice(values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    given.label = given.label or name.replace("_", " ")
    return given


def _check_arguments(name, draw, choices):
    if not choices:
        raise ValueError(f"{name}: expected at least one argument with values to choose from, got none")
    try:
        inspect.signature(draw).bind(**choices)
    except TypeError as error:  # it names the argument that is missing or unknown
        raise ValueError(f"{name}: expected a function that draws for these choices: {error}") from None


def _text(value):
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _control(identifier, c):
    """Return a native control, which the keyboard moves: a slider where values have an order, else a menu."""
    texts = [escape(text) for text in c.texts]
    common = f'id="{identifier}" data-texts="{escape(json.dumps(c.texts, ensure_ascii=False))}" autocomplete="off"'
    if c.ordered:
        slider = f'type="range" min="0" max="{len(texts) - 1}" value="{c.start}" aria-valuetext="{texts[c.start]}"'
        width = f"min-width: {min(max(map(len, c.texts)), 20)}ch"  # so that a longer value does not shift the row
        control = f'<input {common} {slider}><output for="{identifier}" style="{width}">{texts[c.start]}</output>'
    else:
        options = [f"<option value={i}{' selected' * (i == c.start)}>{text}</option>" for i, text in enumerate(texts)]
        control = f"<select {common}>{''.join(options)}</select>"
    return f'<div class="control"><label for="{identifier}">{escape(c.label)}</label>{control}</div>'


def _live_control(ipywidgets, c):
    kind = ipywidgets.SelectionSlider if c.ordered else ipywidgets.Dropdown
    options = [(text, i) for i, text in enumerate(c.texts)]
    return kind(options=options, index=c.start, description=c.label, style={"description_width": "initial"})


def _as_html(result, alt):
    if hasattr(result, "savefig"):
        return image(svg(result), alt)
    if hasattr(result, "_repr_svg_"):
        return image(result._repr_svg_(), alt)
    for method in ("_repr_html_", "__html__"):
        if hasattr(result, method):
            return getattr(result, method)()
    if isinstance(result, str):
        return f"<pre>{escape(result)}</pre>"
    raise ValueError(f"expected a figure or text, got {result!r}: return the figure")
