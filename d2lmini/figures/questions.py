"""Questions to answer before the reveal: a reader commits to an answer, then is told what speaks for or against it.

The answers are HTML's own disclosure elements, of which one is open at a time. So a question works by keyboard and
screen reader, in the page and in Jupyter, and needs no script, kernel or network.
"""

import hashlib
import re
from html import escape


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
    return Question(question, replies, answer)


class Question:
    """What `ask` returns; `str` gives the question and its answers, a notebook asks for the HTML."""

    def __init__(self, question, replies, answer):
        self.question, self.replies, self.answer = question, dict(replies), answer

    def __repr__(self):
        return "\n".join([self.question, *(f"  ( ) {choice}" for choice in self.replies)])

    def _repr_html_(self):
        content = repr((self.question, self.replies, self.answer))
        name = f"ask-{hashlib.sha256(content.encode()).hexdigest()[:10]}"  # of one name, one is open at a time
        body = "".join(self._choice(name, choice, reply) for choice, reply in self.replies.items())
        asked = f'<p id="{name}">{_text(self.question)}</p>'
        return f'<div class="d2l-ask" role="group" aria-labelledby="{name}">{asked}{body}</div>'

    def _choice(self, name, choice, reply):
        verdict = "Yes." if choice == self.answer else "No."
        return (f'<details name="{name}"><summary>{_text(choice)}</summary>'
                f"<p><strong>{verdict}</strong> {_text(reply)}</p></details>")  # fmt: skip


def _text(text):
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(str(text)))
