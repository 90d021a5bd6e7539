"""The notebooks made for running, as JupyterLab shows them in a browser."""

import json
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
import run_notebooks
from book_names import Names

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = run_notebooks.pages()
TOKEN = secrets.token_hex(8)
SHORT = "chapters/test-your-own-code"
RENDERED = """count => [...document.querySelectorAll(".jp-Notebook .jp-MarkdownOutput")]
    .filter(text => text.textContent.trim()).length === count"""
MARKS = ("{doc}", "{cite", "{ref}", "{term}", ":label:", "```{", ":::")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab that shows the notebooks, started as `make lab` does."""
    folder = tmp_path_factory.mktemp("lab")
    run_notebooks.store(folder, run_notebooks.texts())
    runtime = tmp_path_factory.mktemp("runtime")
    places = {"JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(runtime), "JUPYTER_DATA_DIR": str(runtime)}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0",
               f"--notebook-dir={folder}", f"--IdentityProvider.token={TOKEN}",
               "--LabApp.extension_manager=readonly", "--LabApp.news_url=None"]  # fmt: skip
    settings = runtime / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}}))
    log = (runtime / "log").open("w")
    server = subprocess.Popen(command, env={**os.environ, **places}, stdout=log, stderr=log)
    try:
        for _ in range(600):
            if found := list(runtime.glob("jpserver-*.json")):
                address = json.loads(found[0].read_text())["url"].rstrip("/")
                urllib.request.urlopen(f"{address}/api?token={TOKEN}").close()
                break
            assert server.poll() is None, Path(log.name).read_text()
            time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.parametrize("page", [p if p == SHORT else pytest.param(p, marks=pytest.mark.long) for p in PAGES])
def test_no_marks_are_seen_and_a_solution_unfolds_at_a_click(lab, browser, page):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto(f"{lab}/lab/tree/{page}.ipynb?token={TOKEN}&reset")
    cells = nbformat.read(run_notebooks.ROOT / f"{page}.ipynb", as_version=4).cells
    texts = [cell.source for cell in run_notebooks.make(page, Names()).cells if cell.cell_type == "markdown"]
    shown = tab.locator(".jp-Notebook .jp-MarkdownOutput")
    tab.wait_for_function(RENDERED, arg=len(texts), timeout=90_000)
    folds = shown.locator("details")
    starts = sum(len(re.findall(r"\{solution(?:-start)?\}", c.source)) for c in cells if c.cell_type == "markdown")
    assert folds.count() >= starts
    folded = folds.locator(":scope > :not(summary)")
    assert folded.count() >= starts
    assert folded.evaluate_all("all => all.filter(part => part.checkVisibility()).map(part => part.textContent)") == []
    for text in [*shown.all_inner_texts(), *tab.locator(".jp-Notebook .jp-OutputArea").all_inner_texts()]:
        assert [mark for mark in MARKS if mark in text] == []
    if starts:
        folds.last.locator("summary").click()
        assert folds.last.locator(":scope > :not(summary)").first.evaluate("part => part.checkVisibility()")
    context.close()
