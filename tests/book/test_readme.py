"""The examples in README.md run as they stand there, one after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.process
def test_the_examples_run_and_say_where_their_times_come_from():
    example = "\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("simulated on 2 × V100-SXM2-16GB")
    assert "4,000,000 bytes" in done.stdout  # the product crosses to the other GPU
    assert str([[28.0] * 4] * 8) in done.stdout  # the sum of the ranks' numbers, on each of them
