"""Questions to answer before the reveal: a reader commits to an answer, then is told what speaks for or against it.

The answers are HTML's own disclosure elements, of which one is open at a time. So a question works by keyboard and
screen reader, in the page and in Jupyter, and needs no script, kernel or network.
"""

import hashlib
import re
from html import escape

from d2lmini.figures.tables import Shown


def ask(question, replies, answer):
    """Return a question that a notebook shows when it is a cell's last line.

    question: a sentence. replies: a dictionary from each answer on offer to what is said to a reader who chose it: for
    a wrong one the misconception behind it, for the right one why it is right. answer: the right one. Text between
    `backticks` is set as code. Raises ValueError for fewer than two answers and when the right one is not among them.
    """
    if len(replies) < 2:
        raise ValueError(f"expected two or more answers to choose from, got {list(replies)}")
    if answer not in replies:
        raise ValueError(f"expected the right answer {answer!r} to be among {list(replies)}")
    content = repr((question, dict(replies), answer))
    name = f"ask-{hashlib.sha256(content.encode()).hexdigest()[:10]}"  # of one name, one is open at a time
    body = "".join(
        f'<details name="{name}"><summary>{_text(choice)}</summary>'
        f"<p><strong>{'Yes.' if choice == answer else 'No.'}</strong> {_text(reply)}</p></details>"
        for choice, reply in replies.items()
    )
    asked = f'<p id="{name}">{_text(question)}</p>'
    html = f'<div class="d2l-ask" role="group" aria-labelledby="{name}">{asked}{body}</div>'
    return Shown("\n".join([question, *(f"  ( ) {choice}" for choice in replies)]), html)


def _text(text):
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(str(text)))
