"""Questions to answer before the reveal: a reader commits to an answer, then is told what speaks for or against it.

The answers are HTML's own disclosure elements, of which one is open at a time. So a question works by keyboard and
screen reader, in the page and in Jupyter, and needs no script, kernel or network. The book's pages add to it: the
output that follows a question stays folded until the reader has answered (`_static/questions.js`).
"""

import hashlib
import math
import re
from html import escape

from d2lmini.figures.tables import Shown


def ask(question, replies, answer):
    """Return a question that a notebook shows when it is a cell's last line; text between `backticks` is set as code.

    Args:
        question: A sentence.
        replies: Each answer on offer -> what is said to a reader who chose it: for a wrong one the misconception behind
            it, for the right one why it is right.
        answer: The right one.

    Raises:
        ValueError: Fewer than two answers, or the right one is not among them.
    """
    if len(replies) < 2:
        raise ValueError(f"expected two or more answers to choose from, got {list(replies)}")
    if answer not in replies:
        raise ValueError(f"expected the right answer {answer!r} to be among {list(replies)}")
    name = _name(question, dict(replies), answer)  # of one name, one is open at a time
    body = "".join(
        f'<details name="{name}"><summary>{_text(choice)}</summary>'
        f"<p><strong>{'Yes.' if choice == answer else 'No.'}</strong> {_text(reply)}</p></details>"
        for choice, reply in replies.items()
    )
    lines = [question, *(f"  ( ) {choice}" for choice in replies)]
    return Shown("\n".join(lines), _group("d2l-ask", name, question, body))


def predict(question, answer, unit="", within=2, why=""):
    """Return a question for a number, which a notebook shows when it is a cell's last line.

    In the book's pages the reader types a guess; elsewhere the answer unfolds. Text between `backticks` is set as code.

    Args:
        question: A sentence.
        answer: The number, above zero, shown with three digits.
        unit: Its unit.
        within: A guess is right if it is at most this factor too large or too small.
        why: What is said to a reader who has guessed.

    Raises:
        ValueError: An answer that is no number above zero, or a factor that is not above one.
    """
    if not 0 < answer < math.inf:
        raise ValueError(f"expected an answer above zero, got {answer!r}")
    if not within > 1:
        raise ValueError(f"expected a factor above 1 for a guess to be within, got {within!r}")
    number = float(f"{answer:.3g}")
    shown, name = f"{number:,.12g} {unit}".strip(), _name(question, number, unit, within, why)
    body = f"<details><summary>Show the answer</summary><p><strong>{escape(shown)}.</strong> {_text(why)}</p></details>"
    data = f'data-answer="{number:.12g}" data-unit="{escape(unit)}" data-within="{within:g}"'
    text = f"{question}\n  ____ {unit}".rstrip() + f" (right within a factor of {within:g})"
    return Shown(text, _group("d2l-ask d2l-predict", name, question, body, f" {data}"))


def _name(*content):
    return f"ask-{hashlib.sha256(repr(content).encode()).hexdigest()[:10]}"


def _group(classes, name, question, body, data=""):
    asked = f'<p id="{name}">{_text(question)}</p>'
    return f'<div class="{classes}" role="group" aria-labelledby="{name}"{data}>{asked}{body}</div>'


def _text(text):
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(str(text)))
