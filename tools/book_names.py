"""What the book's cross-references say: titles of pages, numbers of exercises and equations, authors and years.

Nothing here needs Sphinx. The numbers are those of the built book: an exercise's and a theorem's place among those of
all pages, in the order of `_toc.yml`.
"""

import functools
import os
import re
from pathlib import Path
from urllib.parse import quote_plus

import nbformat
import yaml
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parent.parent
DIRECTIVE = re.compile(r"(?m)^ *[`:]{3,}\{(exercise|prf:\w+)\}([^\n]*)\n((?: *:[\w-]+:[^\n]*\n)*)")
TARGET = re.compile(r"(?m)^\(([\w:.-]+)\)=\n+([^\n]*)")
EQUATION = re.compile(r"\$\$ *\(([\w:.-]+)\)|\{math\}[^\n]*\n(?: *:[\w-]+:[^\n]*\n)*? *:label: *(\S+)")


class PlainError(Exception):
    """A chapter uses what the notebooks made for running cannot show; the message says what, and where."""


def toc():
    """Return the names of all pages, without suffix, in the order of the book's contents."""
    found = []

    def walk(node):
        if isinstance(node, dict):
            found.extend(value for key, value in node.items() if key in ("root", "file"))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8")))
    return found


def prose(page):
    """Return the text of a page, without code cells; an empty string where there is no such page."""
    notebook, plain = ROOT / f"{page}.ipynb", ROOT / f"{page}.md"
    if notebook.is_file():
        cells = nbformat.read(notebook, as_version=4).cells
        return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return plain.read_text(encoding="utf-8") if plain.is_file() else ""


def without_markup(title):
    """Return a heading's text without marks and roles."""
    return re.sub(r"\{[\w:-]+\}`([^`<]*)[^`]*`", r"\1", title).replace("*", "").strip()


def label_of(options):
    """Return the label among a directive's option lines, or None."""
    found = re.search(r":label: *(\S+)", options)
    return found and found[1]


class Names:
    """What each reference leads to: `titles` of pages, `labels` to (page, text), `equations` to a number.

    `labels` holds exercises and theorems with number and title, and headings that carry a target.
    """

    def __init__(self, pages=None):
        self.titles, self.labels, self.equations = {}, {}, {}
        counts = {}
        for page in pages or toc():
            text = prose(page)
            heading = re.search(r"(?m)^# +(.+)$", text)
            self.titles[page] = without_markup(heading[1]) if heading else page
            for kind, title, options in DIRECTIVE.findall(text):
                name = kind.removeprefix("prf:").capitalize()
                numbered = ":nonumber:" not in options
                counts[kind] = counts.get(kind, 0) + numbered
                called = f"{name} {counts[kind]}" if numbered else name
                title = f" ({title.strip()})" if title.strip() else ""
                self.labels[label_of(options) or (page, len(self.labels))] = (page, called, called + title)
            for label, line in TARGET.findall(text):
                words = without_markup(line.lstrip("#"))
                self.labels[label] = (page, words, words)
            for number, found in enumerate(EQUATION.finditer(text), start=1):
                self.equations[found[1] or found[2]] = number

    def label(self, name, where):
        """Return (page, short text, text with its title) of a label; raise PlainError if no page has it."""
        if name not in self.labels:
            raise PlainError(f"{where}: no page has the label {name!r}")
        return self.labels[name]


@functools.cache
def bibliography():
    """Return the entries of the book's bibliography by key."""
    return parse_file(str(ROOT / "references.bib")).entries


def plain(text):
    """Return a field of the bibliography without TeX's braces and dashes."""
    return re.sub(r"[{}]", "", text).replace("---", "—").replace("--", "–").replace("~", " ")


def authors(entry):
    """Return who wrote an entry, as the book does: one name, two, or the first and *et al.*"""
    persons = entry.persons.get("author") or entry.persons.get("editor") or []
    if not persons:
        return plain(entry.fields.get("organization") or entry.fields["title"])
    first, *more = [" ".join([*map(str, p.rich_prelast_names), *map(str, p.rich_last_names)]) for p in persons]
    if not more:
        return first
    return f"{first} and {more[0]}" if len(more) == 1 and more[0] != "others" else f"{first} et al."


def address(entry):
    """Return where an entry can be read: its DOI, its own address, or a search for its title."""
    if "doi" in entry.fields:
        return f"https://doi.org/{entry.fields['doi']}"
    own = re.search(r"https?://[^\s}]+", " ".join(entry.fields.get(name, "") for name in ("url", "howpublished")))
    if own:
        return own[0]
    if re.match(r"arxiv", entry.fields.get("archiveprefix", ""), re.IGNORECASE):
        return f"https://arxiv.org/abs/{entry.fields['eprint']}"
    return f"https://scholar.google.com/scholar?q={quote_plus(plain(entry.fields['title']))}"


def cited(keys, where, textual=False):
    """Return citations as Markdown, each a link: (Author, year), or Author (year) where they are part of a sentence."""
    found = []
    for key in re.split(r"\s*,\s*", keys.strip()):
        entry = bibliography().get(key)
        if entry is None:
            raise PlainError(f"{where}: the bibliography has no entry {key!r}")
        year = entry.fields.get("year", "n.d.")
        text = f"{authors(entry)} ({year})" if textual else f"{authors(entry)}, {year}"
        found.append(f"[{text}](<{address(entry)}>)")
    return ", ".join(found) if textual else f"({'; '.join(found)})"


def repository():
    """Return the address of the book's repository, from `_config.yml` or the workflow that builds the book, or ''."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    name = os.environ.get("GITHUB_REPOSITORY")
    from_workflow = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}" if name else ""
    return config["sphinx"]["config"]["html_theme_options"].get("repository_url") or from_workflow


def published(page):
    """Return the address of a page on the site that the repository's workflow deploys, or '' without a repository."""
    owner, name = [*repository().split("/")[-2:], ""][:2]
    return f"https://{owner}.github.io/{name}/{page}.html" if name else ""
