"""A Sphinx extension: the directive `published-figures` collects what the chapters set beside published numbers.

The tables are those that the chapters' cells stored; the sources are read from the data files. So no number is typed
here, and a comparison that a chapter adds, changes or drops is added, changed or dropped on the page.
"""

import csv
import json
import re
import statistics
from html import unescape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

ROOT = Path(__file__).resolve().parent.parent
DRAWN = ROOT / "chapters" / "results" / "predict.json"
NAMED = re.compile(r"(?<!as )\bpublished\b|\blecture\b|, measured$")  # in a heading, a caption or the name of a row
CELL = re.compile(r"<(?:th|td|caption)\b[^>]*>(.*?)</(?:th|td|caption)>")


def compares(html, source):
    """Say whether a table of a cell with this source sets something beside published numbers."""
    texts = [unescape(text) for text in CELL.findall(html)]
    return any(map(NAMED.search, texts)) or ("error" in texts and "published" in source)


def comparisons(path):
    """Yield (heading of the section, HTML of the table) of a notebook's stored tables that compare."""
    heading = ""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            heading = [heading, *re.findall(r"(?m)^#+ +(.+?) *$", source)][-1]
            continue
        if f"results/{DRAWN.name}" in source:
            yield heading, drawn()
        for output in cell["outputs"]:
            html = "".join(output.get("data", {}).get("text/html", ""))
            if html.startswith("<table") and compares(html, source):
                yield heading, html


def drawn():
    """Return the table of the one comparison that a chapter only draws."""
    from d2lmini.figures import tables  # with torch, at which other extensions would stumble as they are loaded

    record = json.loads(DRAWN.read_text(encoding="utf-8"))
    rows = [
        [
            row["network"],
            row["gpu"],
            row["tool"],
            f"{row['published_s']:.3f}",
            f"{row['simulated_s']:.3f}",
            f"{row['error']:+.0%}",
        ]
        for row in record["rows"]
    ]
    headings = ["network", "card", "fastest tool", "published (s)", "simulated (s)", "error"]
    return tables.table(headings, rows, record["where"])._repr_html_()


def sources(path):
    """Return source -> how many rows of a data file name it; a file without that column says it in its first line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    if "source" not in rows[0]:
        return {lines[0].lstrip("# "): len(rows)}
    names = [row["source"] for row in rows]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def section(title, *content):
    """Return a section."""
    name = nodes.make_id(title)
    return nodes.section("", nodes.title("", title), *content, ids=[name], names=[name])


def pages():
    """Return the notebooks that may compare, in the book's order."""
    names = re.findall(r"(?m)file: ((?:chapters|reference)/[\w-]+)$", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [path for path in (ROOT / f"{name}.ipynb" for name in names) if path.is_file()]


def compared(builder, docname, path):
    """Return a notebook's section: each table, under a link to where the chapter has it; None where there is none."""
    title = re.search(r"# (.+)", "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]))[1]
    content, last = [], None
    for heading, html in comparisons(path):
        place = f"{builder.get_relative_uri(docname, f'{path.parent.name}/{path.stem}')}#{nodes.make_id(heading)}"
        if heading != last:
            content.append(nodes.paragraph("", "", nodes.reference("", heading, internal=True, refuri=place)))
        output = nodes.container("", nodes.raw("", html, format="html"), classes=["output", "text_html"])
        content.append(nodes.container("", output, classes=["cell_output"]))
        last = heading
    return section(title, *content) if content else None


def errors(html):
    """Return the errors that a table of a notebook states in its columns headed "error": percents, without sign."""
    heads = re.findall(r"<th\b[^>]*>(.*?)</th>", html)
    columns = [place for place, head in enumerate(heads) if head.strip() == "error"]
    rows = [re.findall(r"<td\b[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>((?:<td\b.*?</td>)+)</tr>", html)]
    cells = (row[column] for row in rows for column in columns)
    return [int(found[1]) for found in (re.fullmatch(r"[+−-]?(\d+)%", cell.strip()) for cell in cells) if found]


def summary(paths):
    """Return the section that comes first: how far off each part of the book is, a row for each of its headings."""
    from d2lmini.figures import tables

    rows = []
    for path in paths:
        title = re.search(r"# (.+)", "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]))[1]
        found = {}
        for heading, html in comparisons(path):
            found.setdefault(heading, []).extend(errors(html))
        rows += [
            (title.split(":")[0], heading, len(off), f"{statistics.median(off):.0f}%", f"{max(off)}%")
            for heading, off in found.items()
            if off
        ]
    table = tables.table(["chapter", "compared", "numbers", "median error", "largest"], rows)._repr_html_()
    output = nodes.container("", nodes.raw("", table, format="html"), classes=["output", "text_html"])
    return section("In one table", nodes.container("", output, classes=["cell_output"]))


def listed(path):
    """Return a definition list's item for a data file and its sources."""
    lines = [f"{name} ({count} row{'s' * (count > 1)})" for name, count in sources(path).items()]
    items = [nodes.list_item("", nodes.paragraph("", line)) for line in lines]
    what = nodes.definition("", nodes.bullet_list("", *items))
    return nodes.definition_list_item("", nodes.term("", "", nodes.literal("", path.name)), what)


class PublishedFigures(Directive):
    """A section for each chapter that compares, in the book's order, and one for the data files."""

    def run(self):
        """Return the sections."""
        env = self.state.document.settings.env
        paths = pages()
        found = [compared(env.app.builder, env.docname, path) for path in paths]
        files = sorted((ROOT / "chapters" / "data").glob("*.csv"))
        for path in [*paths, *files, DRAWN]:
            env.note_dependency(str(path))
        where = section("Where the numbers come from", nodes.definition_list("", *map(listed, files)))
        return [summary(paths), *filter(None, found), where]


def setup(app):
    """Register with Sphinx."""
    app.add_directive("published-figures", PublishedFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
