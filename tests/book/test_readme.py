"""The examples in README.md run as they stand there, one after the other."""

import re
from pathlib import Path

import simgpu

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_examples_run_and_say_where_their_times_come_from(capsys):
    exec("\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)), {})
    simgpu.disable()
    said = capsys.readouterr().out
    assert said.startswith("simulated on 2 × V100-SXM2-16GB")
    assert "4,000,000 bytes" in said  # the product crosses to the other GPU
    assert str([[28.0] * 4] * 8) in said  # the sum of the ranks' numbers, on each of them
