"""The simulated times of the cases, each equal to the one in golden_times.json to the picosecond.

python tests/sim/ranks/test_golden_times.py    # rewrites the file, where times are meant to change
"""

import hashlib
import json
import warnings
from collections import defaultdict
from pathlib import Path

import cases
import pytest
import torch

import simgpu

GOLDEN = Path(__file__).with_name("golden_times.json")
TORCH, RANKS, PS = torch.__version__.partition("+")[0], 4, 10**12
# DDP zeroes the gradients of unused parameters in an order of chance: of this case the messages alone are compared.
BY_CHANCE = "DDP, parameters that go unused"


def traced(case):
    """Return what `case` took: by kind of span how many and their picoseconds in all, its end, and a hash of all."""
    simgpu.enable(RANKS, gpu="V100-SXM2-16GB", link="NVLink2")
    with simgpu.trace() as trace:
        simgpu.spawn(case.run)
    spans = [s for s in trace.spans if s.kind == "communication" or case.name != BY_CHANCE]
    rows = sorted((s.name, s.place, s.kind, round(s.start_s * PS), round(s.end_s * PS), s.nbytes) for s in spans)
    found = defaultdict(lambda: [0, 0])
    for _, _, kind, start, end, _ in rows:
        found[kind][0] += 1
        found[kind][1] += end - start
    found["end"] = round(trace.seconds * PS)
    found["hash"] = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    return dict(sorted(found.items()))


@pytest.fixture(scope="module")
def golden():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    if golden.pop("torch") != TORCH:
        pytest.skip(f"the times are those of another torch than {TORCH}, which may do other operations")
    return golden


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", cases.CASES, ids=[case.name for case in cases.CASES])
def test_a_case_takes_its_golden_time(case, golden):
    wanted, found = golden[case.name], traced(case)
    differ = [
        f"{key} was {wanted.get(key)}, is {found.get(key)}"
        for key in sorted({*wanted, *found})
        if wanted.get(key) != found.get(key)
    ]
    assert not differ, f"{case.name}: {'; '.join(differ)} (spans and picoseconds of a kind)"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    lines = {"torch": TORCH, **{case.name: traced(case) for case in cases.CASES}}
    text = ",\n".join(f"  {json.dumps(key, ensure_ascii=False)}: {json.dumps(line)}" for key, line in lines.items())
    GOLDEN.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
