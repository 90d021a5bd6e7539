"""MyST as plain Markdown: each directive and role that a chapter may use, the unknown ones refused, and kept guards."""

import pytest
from book_names import Names, PlainError
from needed import needed
from plain_markdown import Plain


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    names = Names(["chapters/devices", "chapters/transfers", "reference/glossary"])
    names.labels["exercise-a"] = ("chapters/devices", "Exercise 3", "Exercise 3 (Move it)")
    names.labels["elsewhere"] = ("chapters/transfers", "A section", "A section")
    names.labels["thm"] = ("chapters/devices", "Theorem 1", "Theorem 1 (Bound)")
    names.equations["eq-a"] = 2
    return Plain("chapters/devices", names)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("see {doc}`transfers`, {doc}`here <devices>`", "see [Transfers: what a copy costs](transfers.ipynb), here"),
        ("{doc}`the list </reference/glossary>`", "the list"),
        ("{ref}`elsewhere` {ref}`that <elsewhere>`", "[A section](transfers.ipynb) [that](transfers.ipynb)"),
        ("{ref}`exercise-a`, {numref}`exercise-a`", "Exercise 3 (Move it), Exercise 3"),
        ("by {eq}`eq-a`: {math}`x^2`", "by (2): $x^2$"),
        ("$$ a = b $$ (eq-a)", "$$ a = b \\tag{2}$$"),
        ("a {term}`rank`, {term}`ranks <rank>`; H{sub}`2`O", "a rank, ranks; H<sub>2</sub>O"),
        ("{cite}`hockney1994communication`", "([Hockney, 1994](<https://doi.org/10.1016/S0167-8191(06)80021-9>))"),
        ("{cite:t}`thakur2005optimization`", "[Thakur et al. (2005)](<https://doi.org/10.1177/1094342005051521>)"),
        ("(a-label)=\n## Title", "## Title"),
        ("`{doc}` and $\\sqrt[3]{x=1}$ stay", "`{doc}` and $\\sqrt[3]{x=1}$ stay"),
        ("a [word]{.green} in `code`{l=python}", "a [word] in `code`"),
        ("{.wide}\n| a | b |", "\n| a | b |".strip("\n")),
        ("% a comment\ntext\n+++", "text"),
        ("Term\n: what it\n  means", "- **Term**: what it means"),
        (
            "[](transfers.ipynb) [x](#elsewhere) [y](#nowhere)",
            "[Transfers: what a copy costs](transfers.ipynb) [x](transfers.ipynb) y",
        ),
        ("a note[^1]\n\n[^1]: said so", "a note<sup>1</sup>\n\n<sup>1</sup> said so"),
        ("```python\nx = {doc}\n```", "```python\nx = {doc}\n```"),
        ("```{code-block} bash\n:caption: c\nls\n```", "```bash\nls\n```"),
        ("```{math}\n:label: eq-a\nx\n```", "$$\nx \\tag{2}\n$$"),
        (
            ":::{note}\nSee {doc}`transfers`.\n:::",
            "> **Note**\n>\n> See [Transfers: what a copy costs](transfers.ipynb).",
        ),
        (":::{admonition} Two `x`\n:class: tip\na\n\nb\n:::", "> **Two `x`**\n>\n> a\n>\n> b"),
        (":::{tip}\n:class: dropdown\na\n:::", "<details>\n<summary>Tip</summary>\n\na\n\n</details>"),
        (":::{dropdown} Why `x`?\na\n:::", "<details>\n<summary>Why <code>x</code>?</summary>\n\na\n\n</details>"),
        ("```{hint}\n:class: dropdown\na\n```", "<details>\n<summary>Hint</summary>\n\na\n\n</details>"),
        ("```{exercise} Move it\n:label: exercise-a\n\nDo.\n```", "#### Exercise 3 (Move it)\n\nDo."),
        (
            "```{solution} exercise-a\n:class: dropdown\n\nDone.\n```",
            "<details>\n<summary>Solution to Exercise 3 (Move it)</summary>\n\nDone.\n\n</details>",
        ),
        ("```{prf:theorem} Bound\n:label: thm\nx\n```", "> **Theorem 1 (Bound)**\n>\n> x"),
        ("````{note}\n```{code} c\nint x;\n```\n````", "> **Note**\n>\n> ```c\n> int x;\n> ```"),
        (
            "::::{grid} 2\n:::{grid-item-card} A\n:link: /chapters/transfers\nb\n:::\n::::",
            "> **[A](transfers.ipynb)**\n>\n> b",
        ),
        (
            "```{list-table} T\n:header-rows: 1\n* - a\n  - b\n* - c\n  - {term}`d`\n    e\n```",
            "**T**\n\n| a | b |\n| --- | --- |\n| c | d e |",
        ),
        ("```{table} T\n| a |\n| - |\n```", "**T**\n\n| a |\n| - |"),
        ("- a\n\n  ```{note}\n  b\n  ```", "- a\n\n  > **Note**\n  >\n  > b"),
    ],
)
def test_each_construct_has_a_plain_form(plain, source, expected):
    assert plain.text(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "```{mermaid}\ngraph\n```",
        "{unheard}`x`",
        "{doc}`nowhere`",
        "{cite}`nobody`",
        "{ref}`nothing`",
        "```{note}\nnever closed",
        "```{figure} nowhere.png\n```",
    ],
)
def test_what_has_no_plain_form_is_refused_with_its_page(plain, source):
    with pytest.raises(PlainError, match=r"^chapters/devices: "):
        plain.text(source)


def test_a_picture_travels_with_its_cell(plain):
    text = plain.text("```{figure} /_static/logo.svg\n:alt: our mark\n\nThe *logo*\n```")
    assert text == "![our mark](attachment:logo.svg)\n\nThe *logo*"
    assert list(plain.attachments["logo.svg"]) == ["image/svg+xml"]


@pytest.mark.parametrize(
    ("left_out", "behind", "kept"),
    [
        ("x = 1\nassert x", "print(x)", "x = 1"),
        ("x = 1\ny = x + 1\nz = 3", "print(y)", "x = 1\ny = x + 1"),
        ("x = 1", "x = 2\nprint(x)", ""),
        ("for x in y:\n    assert x", "print(x)", ""),
        ("x = 1", "for x in range(3):\n    print(x)", ""),
        ("x = 1", "print([x for x in range(3)])", ""),
        ("x = 1", "def f(x):\n    return x", ""),
        ("x = 1", "def f():\n    return x", "x = 1"),
        ("@cache\ndef f():\n    return 1", "f()", "@cache\ndef f():\n    return 1"),
        ("from a import b as c, d", "c()", "from a import b as c, d"),
        ("first = None", "pass", "first = None"),
        ("%timeit 1\nx = 1", "x += 1", "x = 1"),
    ],
)
def test_of_a_cell_that_is_left_out_only_what_later_ones_read_is_kept(left_out, behind, kept):
    cells = [("first = open('x')\ny = [1]", False), (left_out, True), (behind, False)]
    assert needed(cells) == ["", kept, ""]


def test_a_function_may_read_what_only_a_cell_behind_it_binds():
    assert needed([("def f():\n    return x", False), ("x = 1", True), ("f()", False)]) == ["", "x = 1", ""]


def test_a_left_out_cell_deletes_nothing_that_it_no_longer_makes():
    cells = [("x = y = 1\ndel y", False), ("y = w = 2\nz = 3\ndel w, y, x", True), ("z", False)]
    assert needed(cells) == ["", "z = 3\ndel x", ""]
