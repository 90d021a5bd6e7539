"""The notebooks made for running, as the JupyterLab of `make serve` shows them in a browser."""

import json
import re
import shutil

import nbformat
import pytest
import run_notebooks
from book_names import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.process]
SHORT = "chapters/test-your-own-code"  # the others take minutes: pytest -m long
PAGES = [page if page == SHORT else pytest.param(page, marks=pytest.mark.long) for page in run_notebooks.pages()]
RENDERED = """count => [...document.querySelectorAll(".jp-Notebook .jp-MarkdownOutput")]
    .filter(text => text.textContent.trim()).length === count"""
MARKS = ("{doc}", "{cite", "{ref}", "{term}", ":label:", "```{", ":::")
SOLUTION = re.compile(r"\{solution(?:-start)?\}")


@pytest.fixture(scope="module")
def lab(tmp_path_factory, request):
    """`make serve` with a JupyterLab that draws all cells at once, not only those before the reader."""
    folder = tmp_path_factory.mktemp("jupyter")
    settings = folder / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_CONFIG_DIR", str(folder))
        served = request.getfixturevalue("served")
        served.workspaces = folder / "lab" / "workspaces"
        yield served


@pytest.mark.parametrize("page", PAGES)
def test_a_page_leads_to_its_notebook_without_marks_whose_solutions_unfold_at_a_click(lab, browser, page):
    shutil.rmtree(lab.workspaces, ignore_errors=True)  # or JupyterLab opens again what earlier readers had open
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto(f"{lab.base}/{page}.html?token={lab.token}")
    with context.expect_page() as opened:
        tab.get_by_role("link", name="Open in JupyterLab").click()
    made = nbformat.read(ROOT / "_build" / "notebooks" / f"{page}.ipynb", as_version=4).cells
    texts = [cell for cell in made if cell.cell_type == "markdown"]
    tab = opened.value
    tab.wait_for_function(RENDERED, arg=len(texts), timeout=90_000)
    shown = tab.locator(".jp-Notebook .jp-MarkdownOutput")
    for text in [*shown.all_inner_texts(), *tab.locator(".jp-Notebook .jp-OutputArea").all_inner_texts()]:
        assert [mark for mark in MARKS if mark in text] == []
    source = nbformat.read(ROOT / f"{page}.ipynb", as_version=4).cells
    solutions = sum(len(SOLUTION.findall(cell.source)) for cell in source if cell.cell_type == "markdown")
    folded = shown.locator("details > :not(summary)")
    assert folded.count() >= solutions
    assert folded.evaluate_all("all => all.filter(part => part.checkVisibility()).map(part => part.textContent)") == []
    if solutions:
        shown.locator("details").last.locator("summary").click()
        assert folded.last.evaluate("part => part.checkVisibility()")
    context.close()
