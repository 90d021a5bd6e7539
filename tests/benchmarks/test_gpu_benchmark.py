"""The benchmark of a real card, run in small on simulated GPUs, and what it must not write."""

import json
from pathlib import Path

import epoch
import gpu
import gpu_parts as parts
import pytest
import records
import torch

import simgpu

SMALL = [
    "--images",
    "16",
    "--batch-size",
    "16",
    "--rounds",
    "6",
    "--workers",
    "0",
    "--steps",
    "1",
    "--networks",
    "LeNet",
    "--allreduce-bytes",
    "4096",
]


def names(found, part, rows):
    return [row["name"] for row in found[part][rows]]


@pytest.mark.slow
def test_on_simulated_gpus_every_part_is_there_and_the_ratio_is_one(tmp_path, capsys):
    file = tmp_path / "sim.json"
    words = ["--device", "sim", "--devices", "3", "--gpu", "V100-SXM2-16GB", "--most", "4096", "--out", str(file)]
    assert gpu.main([*words, *SMALL]) == 0
    found = json.loads(file.read_text(encoding="utf-8"))
    out = capsys.readouterr().out
    assert (found["origin"]["device"], found["origin"]["clock"], found["origin"]["cards"]) == ("sim", "simulated", 3)
    assert found["origin"]["card"] == "Simulated V100-SXM2-16GB"
    ways = names(found, "training", "epochs")
    assert len(ways) == 4
    assert not any("compiled" in way for way in ways)
    assert {"cpu → sim:0, pinned", "sim:1 → cpu, pageable", "sim:0 → sim:1"} <= {*names(found, "copies", "routes")}
    pinned = found["copies"]["routes"][1]
    assert pinned["beta"]["value"] == pytest.approx(
        0.8 * simgpu.machine().host_link.bytes_per_s_per_direction, rel=1e-3
    )
    assert [point["size"]["value"] for point in pinned["points"]] == [1024, 2048, 4096]
    assert [row["devices"] for row in found["scaling"]["rows"]] == [1, 2, 3]
    row = found["scaling"]["rows"][2]
    assert row["busbw"]["value"] == pytest.approx(4096 / row["allreduce"]["value"] * 4 / 3)
    assert [r["ratio"]["value"] for r in found["simulated"]["rows"]] == pytest.approx([1] * 11, rel=1e-6)
    assert all(text in out for text in (*ways, "busbw", "ratio 1.000", str(file), "V100"))
    with pytest.raises(ValueError, match="simulated"):
        records.load(tmp_path)


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        (["--device", "sim"], "real card"),
        (["--device", "cpu", "--out", "{results}/../results/a/card.json"], "real card"),
        (["--device", "cpu", "--out", "no/such/card.json"], "no folder"),
        (["--device", "cpu", "--out", "{tests}"], "is a folder"),
        (["--device", "cuda", "--devices", "99"], "99 or more"),
    ],
)
def test_what_must_not_be_written_is_refused_before_anything_is_measured(monkeypatch, capsys, words, keyword):
    monkeypatch.setattr(parts, "digits", None)  # the first thing that measuring would need
    before = sorted(gpu.RESULTS.iterdir())
    assert gpu.main([word.format(results=gpu.RESULTS, tests=Path(__file__).parent) for word in words]) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert keyword in told
    assert sorted(gpu.RESULTS.iterdir()) == before


def test_which_ways_to_compile_are_measured_where():
    every = gpu.parse([]).compile
    assert gpu.compiled(every, "cuda") == ["compiled", "cuda-graph"]
    assert gpu.compiled(every, "cpu") == ["compiled"]
    assert gpu.compiled(every, "sim") == gpu.compiled(["none"], "cuda") == []


@pytest.mark.parametrize(
    ("card", "row"),
    [
        ("NVIDIA GeForce GTX 1080 Ti", ("GTX 1080 Ti", "PCIe3-x16")),
        ("NVIDIA H200", ("H200-SXM5-141GB", "PCIe5-x16")),
        ("Some CPU", (None, "simgpu/hardware/gpus.csv has no row for Some CPU, so nothing was simulated")),
    ],
)
def test_a_card_is_simulated_by_its_row(card, row):
    assert gpu.simulated_row({"device": "cuda", "card": card}) == row


def test_per_sample_gives_what_an_iterator_in_memory_gives():
    images = torch.arange(2 * 9, dtype=torch.uint8).reshape(2, 1, 3, 3) * 14
    data = epoch.PerSample(images, torch.tensor([7, 8]))
    X, y = next(iter(torch.utils.data.DataLoader(data, batch_size=2)))
    assert torch.equal(X, images.float() / 255)
    assert y.tolist() == [7, 8]
    assert len(data) == 2
