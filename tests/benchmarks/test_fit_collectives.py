"""The fit of the collectives' constants finds constants that are known."""

import csv

import fit_collectives
import pytest

from simgpu.hardware import collective_costs


@pytest.fixture
def fitting():
    before = {constant: fit_collectives.get(constant) for constant in fit_collectives.CONSTANTS}
    yield fit_collectives
    for constant, value in before.items():
        fit_collectives.put(constant, value)


def test_the_fit_finds_the_constants_that_made_the_rows(fitting, tmp_path, capsys, monkeypatch):
    known = {("START_S",): 5e-6, ("HOP_S", "LL"): 2e-6, ("SHARE", "Simple"): 1.0, ("DIRECT_SHARE",): 0.6}
    monkeypatch.setattr(fitting, "CONSTANTS", list(known))  # the others are right, and take most of the time
    before = {constant: fitting.get(constant) for constant in known}
    for constant, value in known.items():
        fitting.put(constant, value)
    rows = [
        {"gpu": gpu, "op_name": operation, "nccl_dtype": "half", "num_gpus": gpus, "bytes": 4**power}
        for gpu in ("A100-SXM4-80GB", "H100-80GB-HBM3")
        for operation in ("all_reduce", "all_gather", "alltoall")
        for gpus in (2, 4, 8)
        for power in range(5, 15)
    ]
    for row in rows:
        row["latency_ms"] = fitting.simulated(row) * 1e3
    for constant, value in before.items():
        fitting.put(constant, value)
    with open(tmp_path / "rows.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    fitting.main(tmp_path / "rows.csv")
    assert pytest.approx(5e-6, rel=0.01) == collective_costs.START_S
    assert collective_costs.HOP_S["LL"] == pytest.approx(2e-6, rel=0.01)
    assert pytest.approx(0.6, rel=0.01) == collective_costs.DIRECT_SHARE
    assert max(max(bands.values()) for bands in fitting.medians(rows).values()) < 0.01
    assert capsys.readouterr().out.count("held out") == 3
