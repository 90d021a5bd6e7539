"""The examples in README.md run as they stand there, and what it says of simgpu is what simgpu's own README says."""

import re
from pathlib import Path

import simgpu

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language, text=README):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_examples_run_and_say_where_their_times_come_from(capsys):
    names = {}
    exec("\n".join(block for block in blocks("python") if "import pytest" not in block), names)
    names["test_code_for_cuda"](sim_gpus=None)  # on the last block's GPUs
    names.clear()  # and with it the tensors
    simgpu.disable()
    said = capsys.readouterr().out
    assert said.startswith("simulated on 2 × V100-SXM2-16GB")
    assert "4,000,000 bytes" in said  # the product crosses to the other GPU
    assert str([[28.0] * 4] * 8) in said  # the sum of the ranks' numbers, on each of them


def test_test_file_workflow_and_torch_are_those_of_the_package():  # whose test is run with the installed plugin
    package = (ROOT / "simgpu" / "README.md").read_text(encoding="utf-8")
    (test,) = (block for block in blocks("python") if "import pytest" in block)
    assert len([line for line in test.splitlines() if line.strip()]) <= 10
    assert test.partition("\n\n\n")[2].strip() in package
    assert blocks("yaml") == blocks("yaml", package)
    least = re.search(r'"torch>=([\d.]+)"', (ROOT / "simgpu" / "pyproject.toml").read_text(encoding="utf-8"))[1]
    assert f"{least} or newer" in README


def test_its_links_and_its_picture_are_there():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        path, _, place = target.partition("#")
        assert (ROOT / path).exists()
        headings = [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in re.findall(r"(?m)^#+ (.+)$", README)]
        assert not place or place in headings
    assert (ROOT / "_static" / "live-page.png").stat().st_size < 150_000
