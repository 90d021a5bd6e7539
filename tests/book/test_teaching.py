"""What a chapter owes its reader: the field's terms, a length that can be read, times that are computed."""

import json
import re

import chapter_budget
import nbformat
import pytest

TERMS = {}
for line in (chapter_budget.ROOT / "tests" / "book" / "terms.txt").read_text(encoding="utf-8").splitlines():
    if line.strip() and not line.startswith("#"):
        chapter, _, listed = line.partition(":")
        TERMS[chapter.strip()] = [term.strip() for term in listed.split(",")]
GLOSSARY = (chapter_budget.ROOT / "reference" / "glossary.md").read_text(encoding="utf-8").lower()
PAGES = [chapter_budget.INDEX, *chapter_budget.chapters(), *(chapter_budget.ROOT / "reference").glob("*.ipynb")]


def prose(path):
    cells = nbformat.read(path, as_version=4).cells
    return " ".join(" ".join(cell.source for cell in cells if cell.cell_type == "markdown").lower().split())


def stands_in(term, text):
    """Say whether a term, or its plural or participle, is in a text; "a/b" asks for one of the two."""
    return any(re.search(rf"(?<!\w){re.escape(one)}(?:e?s|d|ed|ing)?(?!\w)", text) for one in term.lower().split("/"))


@pytest.mark.parametrize("chapter", TERMS)
def test_a_chapter_uses_the_terms_of_the_field_and_the_glossary_has_them(chapter):
    text = prose(chapter_budget.ROOT / "chapters" / f"{chapter}.ipynb")
    assert [term for term in TERMS[chapter] if not stands_in(term, text)] == [], "not in the prose"
    headings = re.findall(r"(?m)^(\S.*)\n(?=(?:\S.*\n)*  )", GLOSSARY.split("```")[1])
    headings = "\n".join(headings) + "\n" + "\n".join(re.findall(r"(?m)^(\S.*)$", GLOSSARY.split("```")[1]))
    assert [term for term in TERMS[chapter] if not stands_in(term, headings)] == [], "not in the glossary"


@pytest.mark.parametrize("chapter", TERMS)
def test_a_chapter_keeps_to_its_budget(chapter):
    found, limits = chapter_budget.measure(chapter_budget.ROOT / "chapters" / f"{chapter}.ipynb"), chapter_budget.LIMITS
    for name in ("words", "visible", "folded", "tables"):
        assert getattr(found, name) <= getattr(limits, name), name
    assert found.questions >= 3
    assert found.figures >= 1


def test_the_front_pages_times_are_computed():
    cells = [cell.source for cell in nbformat.read(chapter_budget.INDEX, 4).cells if cell.cell_type == "markdown"]
    assert [text for text in cells if chapter_budget.with_times(text) != text] == [], (
        "run tools/chapter_budget.py --write"
    )
    assert any("{doc}`chapters/" in text for text in cells)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_line_is_lost_as_a_comment(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            lines = "".join(cell["source"]).splitlines()
            assert [line for line in lines if line.startswith("%")] == [], "MyST takes it for a comment"
