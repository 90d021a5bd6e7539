"""A Sphinx extension: the first use of each of the glossary's terms in a chapter leads to the glossary.

It is done as the pages are written, so the chapters' text stays plain. The definition shows when the pointer rests on
the link.
"""

import re

from docutils import nodes

GLOSSARY = "reference/glossary"
CHAPTERS = "chapters/"
# What is no running text, or is a link already; exercises stand on a ground that links are hard to read on.
APART = (
    nodes.Admonition,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.reference,
    nodes.table,
    nodes.title,
    nodes.image,
    nodes.figure,
)


def terms(glossary):
    """Return term, in lower case -> (its id, its definition) of a glossary's document."""
    found = {}
    for item in glossary.findall(nodes.definition_list_item):
        definition = " ".join(item.next_node(nodes.definition).astext().split())
        for term in item.findall(nodes.term):
            found[term.astext().lower()] = (term["ids"][0], definition)
    return found


def pattern(names):
    """Return the expression for whole words, plurals too, that are one of these names; longer names come first."""
    names = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, names))})(?:e?s)?(?![\w-])", re.IGNORECASE)


def link(app, doctree, docname):
    """Make the first use of each term in a chapter a link, as its page is written."""
    if not docname.startswith(CHAPTERS) or GLOSSARY not in app.env.all_docs:
        return
    left = terms(app.env.get_doctree(GLOSSARY))
    names = pattern(left)
    page = app.builder.get_relative_uri(docname, GLOSSARY)
    for text in list(doctree.findall(nodes.Text)):
        if left and in_prose(text):
            text.parent.replace(text, list(linked(text.astext(), names, left, page)))


def in_prose(text):
    """Say whether a text stands in a paragraph, and in nothing that is apart."""
    above, around = text.parent, []
    while above is not None:
        around.append(above)
        above = above.parent
    return any(isinstance(node, nodes.paragraph) for node in around) and not any(isinstance(n, APART) for n in around)


def spelt(word, place):
    """Say whether a word is the term with this id: ZeRO is not zero."""
    term = place.removeprefix("term-")
    return not any(map(str.isupper, term[1:])) or word.replace(" ", "-") == term


def linked(text, names, left, page):
    """Yield a text's parts as nodes, with links in place of terms in `left`, which are taken out of it.

    `names` is the pattern of all terms: a longer one that has its link already hides the shorter one in it.
    """
    end = 0
    for match in names.finditer(text):
        name = match[1].lower()
        if name in left and spelt(match[1], left[name][0]):
            place, definition = left[name]
            for synonym in [key for key, value in left.items() if value[1] == definition]:
                del left[synonym]
            yield nodes.Text(text[end : match.start()])
            yield nodes.reference(
                "",
                "",
                nodes.Text(match[0]),
                internal=True,
                refuri=f"{page}#{place}",
                reftitle=definition,
                classes=["glossary-term"],
            )
            end = match.end()
    yield nodes.Text(text[end:])


def setup(app):
    """Register with Sphinx."""
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
