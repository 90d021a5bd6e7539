"""MyST, in which the chapters are written, as plain Markdown that JupyterLab, VS Code, Colab and GitHub show alike.

A directive or role that has no rule here raises PlainError: a reader would see its marks.
"""

import base64
import mimetypes
import os
import re

from book_names import ROOT, PlainError, cited, published

FENCE = re.compile(r"( *)(`{3,}|:{3,}|~{3,})(?:\{([\w:-]+)\}|([\w+-]*))[ \t]*(.*)$")
OPTION = re.compile(r" *:([\w-]+):[ \t]*(.*)$")
# What running text may hold that is left as it is, but for roles: code and mathematics.
APART = re.compile(
    r"\{(?P<role>[\w:-]+)\}(?P<r>`+)(?P<content>.+?)(?P=r)|(?P<c>`+)(?!`).+?(?<!`)(?P=c)(?!`)"
    r"|\$\$.+?\$\$|(?<![\\$])\$(?![\s$])[^$]*?(?<!\s)\$(?!\d)",
    re.DOTALL,
)
LINK = re.compile(r"(!?)\[([^]\n]*)\]\((?!https?:|mailto:|attachment:|data:|<)([^)\s]*)\)")
ATTRIBUTES = re.compile(r"(?:(?<=[\])`*\0])|^)\{ *(?:[.#][\w-]|[\w-]+=)[^}\n]*\}", re.MULTILINE)
NAMED = re.compile(r"(.*?)\s*<([^<>]+)>", re.DOTALL)

QUOTED = {"note", "tip", "important", "warning", "caution", "attention", "danger", "error", "seealso"}
FOLDED = {"hint", "dropdown", "solution"}
PARTS = {"grid", "tab-set", "container", "div", "card-carousel", "only"}  # their own frame says nothing
TITLED = {"grid-item-card", "card", "tab-item", "grid-item", "margin", "sidebar", "topic", "epigraph", "admonition"}
CODES = {"code-block", "code", "sourcecode"}
AS_TEXT = {"term", "abbr", "guilabel", "menuselection", "sub-ref", "program", "dfn"}
AS_HTML = {"sub": "sub", "subscript": "sub", "sup": "sup", "superscript": "sup", "kbd": "kbd"}
AS_CODE = {"code", "file", "command", "option", "samp", "literal", "py:func", "py:class"}


class Plain:
    """One page's text as plain Markdown; `attachments` holds its pictures, for the cell that shows them."""

    def __init__(self, page, names):
        self.page, self.names, self.attachments = page, names, {}
        self.unlabelled = iter([name for name in names.labels if isinstance(name, tuple) and name[0] == page])

    def text(self, source):
        """Return a text with its directives, roles, labels and attributes put into plain Markdown."""
        lines, done, prose = source.split("\n"), [], []
        at = 0
        while at < len(lines):
            fence = FENCE.match(lines[at])
            if not fence:
                prose.append(lines[at])
                at += 1
                continue
            done.append(self.inline("\n".join(prose)))
            prose, end = [], self.end(lines, at, fence[2])
            body = [line.removeprefix(fence[1]) for line in lines[at + 1 : end]]
            own = self.directive(fence[3], fence[5], body) if fence[3] else "\n".join(lines[at : end + 1])
            done.append("\n".join(fence[1] + line if line and fence[3] else line for line in own.split("\n")))
            at = end + 1
        done.append(self.inline("\n".join(prose)))
        return "\n".join(done).strip("\n")

    def end(self, lines, start, marks):
        """Return the number of the line that closes the fence of these marks."""
        closing = re.compile(rf" *{re.escape(marks[0])}{{{len(marks)},}} *$")
        for at in range(start + 1, len(lines)):
            if closing.match(lines[at]):
                return at
        raise PlainError(f"{self.page}: nothing closes {lines[start].strip()!r}")

    def directive(self, name, argument, body):
        """Return what a directive shows, as Markdown."""
        options = {}
        while body and (found := OPTION.match(body[0])):
            options[found[1]] = found[2].strip()
            body = body[1:]
        text = "\n".join(body).strip("\n")
        if name in CODES:
            return f"```{argument}\n{text}\n```"
        if name == "math":
            number = self.names.equations.get(options.get("label"))
            tag = f" \\tag{{{number}}}" if number else ""
            return f"$$\n{text}{tag}\n$$"
        if name in ("figure", "image"):
            return self.picture(argument, options, self.text(text))
        if name == "list-table":
            return self.list_table(argument, options, text)
        return self.block(name, self.inline(argument.strip()), options, self.text(text))

    def block(self, name, title, options, text):
        """Return a directive that holds text, whose marks are already plain."""
        if name == "exercise" or name.startswith("prf:"):
            heading = self.names.label(options.get("label") or next(self.unlabelled), self.page)[2]
            return f"#### {heading}\n\n{text}" if name == "exercise" else quote(f"**{heading}**", text)
        if name == "solution":
            title = f"Solution to {self.names.label(title, self.page)[2]}"
        folds = name in FOLDED or "dropdown" in options.get("class", "").split()
        if name in QUOTED | FOLDED | TITLED:
            shown = title if name in TITLED | FOLDED and title else name.capitalize().replace("Seealso", "See also")
            shown = "" if name == "grid-item" else shown
            if "link" in options:
                shown = f"[{shown}]({self.target(options['link'])})"
            return fold(shown, text) if folds else quote(f"**{shown}**" if shown else "", text)
        if name == "table":
            return f"**{title}**\n\n{text}" if title else text
        if name == "rubric":
            return f"**{title}**"
        if name in PARTS:
            return text
        raise PlainError(f"{self.page}: the directive {{{name}}} has no plain form")

    def picture(self, path, options, caption):
        """Return a picture, attached to the cell so that the notebook stands alone, over its caption."""
        file = (ROOT / path.strip().lstrip("/")) if path.startswith("/") else (ROOT / self.page).parent / path.strip()
        if re.match(r"https?:", path):
            return f"![{options.get('alt', '')}]({path.strip()})" + (f"\n\n{caption}" if caption else "")
        if not file.is_file():
            raise PlainError(f"{self.page}: there is no picture {path.strip()}")
        kind = mimetypes.guess_type(file.name)[0] or "image/png"
        self.attachments[file.name] = {kind: base64.b64encode(file.read_bytes()).decode()}
        shown = f"![{options.get('alt', '')}](attachment:{file.name})"
        return f"{shown}\n\n{caption}" if caption else shown

    def list_table(self, caption, options, text):
        """Return a table written as a list of lists, as one of Markdown's."""
        rows = list_rows(text)
        heads = int(options.get("header-rows", 0))
        head, *rest = rows if heads else [[""] * len(rows[0]), *rows]
        lines = [head, ["---"] * len(head), *rest]
        table = "\n".join(f"| {' | '.join(self.inline(cell) for cell in row)} |" for row in lines)
        return f"**{self.inline(caption)}**\n\n{table}" if caption else table

    def inline(self, text):
        """Return running text with its roles, links, labels and attributes in plain Markdown; code stays as it is."""
        text = re.sub(r"(?m)^\([\w:.-]+\)=\n?", "", text)
        text = re.sub(r"(?m)^(%(?= |$).*|\+\+\+.*)\n?", "", text)
        text = re.sub(r"\$\$ *\(([\w:.-]+)\)", self.tagged, text)
        text = re.sub(r"(?m)^(?![ >|#*-])(\S.*)\n((?::[ \t]+.*(?:\n[ \t]+.*)*\n?)+)", definition, text)
        kept = []

        def keep(found):
            kept.append(self.role(found["role"], found["content"]) if found["role"] else found[0])
            return f"\0{len(kept) - 1}\0"

        text = LINK.sub(self.link, ATTRIBUTES.sub("", APART.sub(keep, text)))
        text = re.sub(r"(?m)^\[\^(\w+)\]: ", r"<sup>\1</sup> ", text)
        text = re.sub(r"\[\^(\w+)\]", r"<sup>\1</sup>", text)
        text = re.sub(r"\n{3,}", "\n\n", text)
        return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)

    def tagged(self, found):
        """Return the end of a formula with its label's number."""
        return f"\\tag{{{self.names.equations[found[1]]}}}$$"

    def role(self, name, content):
        """Return what a role shows, as Markdown."""
        content = " ".join(content.split())
        named = NAMED.fullmatch(content)
        text, target = (named[1], named[2]) if named else ("", content)
        if name.startswith("cite"):
            return cited(content, self.page, textual=name in ("cite:t", "cite:ts", "cite:ct"))
        if name == "doc":
            page = self.resolve(target)
            return self.leading(page, text or self.names.titles[page])
        if name in ("ref", "numref", "prf:ref"):
            page, short, full = self.names.label(target, self.page)
            return self.leading(page, text.replace("{number}", short) or (full if name == "ref" else short))
        if name == "eq":
            return f"({self.names.equations[content]})"
        if name == "math":
            return f"${content}$"
        if name in AS_TEXT:
            return text or re.sub(r" \(.*\)$", "", target)
        if name in AS_HTML:
            return f"<{AS_HTML[name]}>{content}</{AS_HTML[name]}>"
        if name in AS_CODE:
            return f"`{content}`"
        raise PlainError(f"{self.page}: the role {{{name}}} has no plain form")

    def link(self, found):
        """Return a link to a page, a label or a picture of the book as one that leads to it from this notebook."""
        picture, text, target = found.groups()
        if picture:
            return self.picture(target, {"alt": text}, "")
        path, _, anchor = target.partition("#")
        if path:
            return self.leading(self.resolve(path), text or self.names.titles.get(self.resolve(path), path))
        return self.role("ref", f"{text} <{anchor}>" if text else anchor) if anchor in self.names.labels else text

    def target(self, name):
        """Return the address that a card's link leads to."""
        if re.match(r"https?:", name):
            return name
        page = self.names.label(name, self.page)[0] if name in self.names.labels else self.resolve(name)
        return self.path(page) or "#"

    def resolve(self, target):
        """Return the name of the page that a path in this page means; raise PlainError if there is none."""
        near = (
            target[1:] if target.startswith("/") else os.path.normpath(os.path.join(os.path.dirname(self.page), target))
        )
        page = re.sub(r"\.(md|ipynb)$", "", near)
        if page not in self.names.titles:
            raise PlainError(f"{self.page}: there is no page {target!r}")
        return page

    def path(self, page):
        """Return the address of a page: its notebook, or where it has none its place in the published book."""
        if (ROOT / f"{page}.ipynb").is_file():
            return os.path.relpath(f"{page}.ipynb", os.path.dirname(self.page) or ".")
        return published(page)

    def leading(self, page, text):
        """Return a text that leads to a page; the text alone where that is this page, or has no address."""
        path = "" if page == self.page else self.path(page)
        return f"[{text}]({path})" if path else text


def quote(title, text):
    """Return a text as a quotation under a title."""
    lines = "\n\n".join(part for part in (title, text) if part).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def fold(title, text):
    """Return a text that unfolds at a click on its title. A summary is HTML, in which Markdown's marks would show."""
    title = re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title))
    title = re.sub(r"\*+([^*]+)\*+", r"<em>\1</em>", title)
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def definition(found):
    """Return a term and its definitions as an item of a list."""
    meaning = " ".join(re.sub(r"(?m)^:[ \t]+", "", found[2]).split())
    return f"- **{found[1].strip()}**: {meaning}\n"


def list_rows(text):
    """Return the rows of a table that is written as a list of lists."""
    rows = []
    for line in text.split("\n"):
        if found := re.match(r"\s*[*-] +[*-] ?(.*)", line):
            rows.append([found[1]])
        elif found := re.match(r"\s+[*-] ?(.*)", line):
            rows[-1].append(found[1])
        elif line.strip():
            rows[-1][-1] += f" {line.strip()}"
    return rows
