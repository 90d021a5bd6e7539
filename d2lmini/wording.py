"""How texts that come from elsewhere, such as paths and others' errors, are shown in one line of our own."""

import re
import shlex

LONGEST = 100  # characters of a word that are repeated; a path has a slash more often


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type's name where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def shortened(text: str) -> str:
    """Return a text whose words are at most `LONGEST` characters long, up to a slash, the rest left out."""
    return re.sub(rf"([^\s/]{{{LONGEST // 2}}})[^\s/]{{{LONGEST // 2},}}", r"\1…", text)


def printable(path) -> str:
    """Return a path in one line: control characters, such as a line break, as Python escapes them."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: repr(found[0])[1:-1], str(path))


def quoted(path) -> str:
    """Return a path as a shell takes it, in one line."""
    text = printable(path)
    return shlex.quote(text) if text == str(path) else "$'" + text.replace("'", "\\'") + "'"
