"""Checks of what callers give: one line that says what was expected and what came."""

import math
import operator
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def find(table: Mapping[str, T], name: str, what: str) -> T:
    """Return ``table[name]``.

    Args:
        table: What there is, by name.
        name: The name to look up.
        what: Of what kind the entries are, for the error's text.

    Raises:
        ValueError: There is no such name; the text lists those that there are.
    """
    if not isinstance(name, str) or name not in table:
        alike = [key for key in table if str(name).lower() in key.lower()]
        raise ValueError(f"unknown {what} {name!r}: choose one of {', '.join(alike or table)}")
    return table[name]


def not_negative(what: str, number: float) -> None:
    """Check a number that a caller gave.

    Raises:
        ValueError: `number` is negative, infinite or no number; the text begins with `what`.
    """
    if not 0 <= number < math.inf:
        raise ValueError(f"{what} must be a finite number that is not negative, got {number}")


def whole(what: str, number: object, least: int, most: int | None = None) -> int:
    """Return a number that a caller gave as an int; NumPy's integers are welcome, booleans and 2.0 are not.

    Raises:
        ValueError: It is no whole number, or outside `least` to `most`; the text begins with `what`.
    """
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    try:
        found = least - 1 if isinstance(number, bool) else operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        found = least - 1
    if found < least or (most is not None and found > most):
        raise ValueError(f"{what} must be a whole number {bounds}, got {number!r}")
    return found
