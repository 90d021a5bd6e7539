"""The benchmark of a real card, run in small on the CPU and on simulated GPUs; what only CUDA answers is played."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from d2lmini import sim
from d2lmini.measuring.transfers import Route

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import epoch
import gpu
import gpu_parts as parts
import records

SMALL = ["--images", "40", "--batch-size", "16", "--rounds", "6", "--workers", "0", "--steps", "1",
         "--networks", "LeNet", "--allreduce-bytes", "4096"]  # fmt: skip


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
    assert pinned["beta"]["value"] == pytest.approx(0.8 * sim.machine().host_link.bytes_per_s_per_direction, rel=1e-3)
    assert [point["size"]["value"] for point in pinned["points"]] == [1024, 2048, 4096]
    assert [row["devices"] for row in found["scaling"]["rows"]] == [1, 2, 3]
    row = found["scaling"]["rows"][2]
    assert row["busbw"]["value"] == pytest.approx(4096 / row["allreduce"]["value"] * 4 / 3)
    assert [r["ratio"]["value"] for r in found["simulated"]["rows"]] == pytest.approx([1] * 11, rel=1e-6)
    assert all(text in out for text in (*ways, "busbw", "ratio 1.000", str(file), "V100"))
    with pytest.raises(ValueError, match="simulated"):
        records.load(tmp_path)


def test_on_the_cpu_nothing_is_simulated_and_the_step_is_compiled(tmp_path, monkeypatch, capsys):
    modes = []
    monkeypatch.setattr(torch, "compile", lambda function, mode, dynamic: modes.append(mode) or function)
    file = tmp_path / "cpu.json"
    assert gpu.main(["--device", "cpu", "--most", str(2**20), "--out", str(file), *SMALL]) == 0
    found = json.loads(file.read_text(encoding="utf-8"))
    assert (found["origin"]["device"], found["origin"]["clock"]) == ("cpu", "measured")
    assert len(names(found, "training", "epochs")) == 5
    assert modes == ["reduce-overhead"]
    assert names(found, "copies", "routes") == ["cpu → cpu"]
    assert found["scaling"]["rows"] == found["simulated"]["rows"] == []
    assert all(row["seconds"]["runs"] == 6 for row in found["training"]["epochs"])


@pytest.mark.parametrize(("words", "keyword"), [
    (["--device", "sim"], "real card"),
    (["--device", "cpu", "--out", "{results}/card.json"], "real card"),
    (["--device", "cpu", "--out", "{results}/../results/a/card.json"], "real card"),
    (["--device", "cpu", "--out", "no/such/card.json"], "no folder"),
    (["--device", "cpu", "--out", "{tests}"], "is a folder"),
    (["--device", "cuda", "--devices", "99"], "99 or more"),
])  # fmt: skip
def test_what_must_not_be_written_is_refused_before_anything_is_measured(monkeypatch, capsys, words, keyword):
    monkeypatch.setattr(parts, "digits", None)  # the first thing that measuring would need
    before = sorted(gpu.RESULTS.iterdir())
    assert gpu.main([word.format(results=gpu.RESULTS, tests=Path(__file__).parent) for word in words]) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert keyword in told
    assert sorted(gpu.RESULTS.iterdir()) == before


def test_a_compiler_that_fails_is_told_and_the_rest_is_measured(monkeypatch):
    def compile(function, mode, dynamic):
        if mode == "default":
            raise FileNotFoundError("Failed to find C compiler.\nSet CC")
        return function

    monkeypatch.setattr(torch, "compile", compile)
    found = parts.training(parts.digits(40), 16, torch.device("cpu"), 6, 0, ["default", "max-autotune"])
    (way,) = [row["name"] for row in found["epochs"][4:]]
    assert "max-autotune" in way
    assert "C compiler" in found["note"]
    assert f"  {found['note']}" in gpu.LINES["training"](found)


def test_which_ways_to_compile_are_measured_where():
    every = gpu.parse([]).compile
    assert gpu.modes(every, "cuda") == ["reduce-overhead", "cuda-graph", "compiled-cuda-graph"]
    assert gpu.modes(every, "cpu") == ["reduce-overhead"]
    assert gpu.modes(every, "sim") == gpu.modes(["none"], "cuda") == []


def test_a_package_that_is_not_there_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert gpu.main(["--device", "cpu", "--out", str(tmp_path / "x.json")]) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert "scikit-learn" in told


@pytest.mark.process
def test_it_runs_in_any_folder_and_names_a_package_that_import_needs(tmp_path):
    done = run_python([gpu.__file__, "--device", "sim"], tmp_path)
    assert "real card" in done.stderr
    code = f"import sys, runpy; sys.modules['psutil'] = None; runpy.run_path({gpu.__file__!r})"
    done = run_python(["-c", code], tmp_path)
    assert done.returncode == 1
    (told,) = done.stderr.splitlines()
    assert "psutil" in told


def run_python(words, folder):
    """Run Python as on a machine where nothing says where the package is."""
    paths = {**os.environ, "PYTHONPATH": str(Path(gpu.__file__).parent)}  # for -c, which has no script's folder
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=folder, check=False, env=paths)


def test_fewer_rounds_than_an_interval_needs(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--rounds", "5"])
    assert "at least 6" in capsys.readouterr().err


@pytest.fixture
def cuda(monkeypatch):
    """Plays the answers of torch.cuda on a machine with two cards."""
    cards = ["NVIDIA H200", "NVIDIA H200"]
    fake = SimpleNamespace(is_available=lambda: True, device_count=lambda: len(cards),
                           get_device_name=lambda device: cards[device.index])  # fmt: skip
    monkeypatch.setattr(torch, "cuda", fake)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return cards


def test_a_card_is_described_and_gets_its_own_file(cuda, monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    asked = "--query-gpu=driver_version --format=csv,noheader"
    tool.write_text(f'#!/bin/sh\n[ "$*" = "{asked}" ] && printf "580.1\\n580.1\\n"')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = gpu.choose("cuda", None, None)
    assert found == [torch.device("cuda", 0), torch.device("cuda", 1)]
    assert gpu.choose("cuda", 1, None) == found[:1]
    told = gpu.origin(found)
    assert (told["card"], told["cards"], told["cuda"], told["driver"]) == ("NVIDIA H200", 2, "13.0", "580.1")
    assert (told["device"], told["clock"]) == ("cuda", "measured")
    assert gpu.target("cuda", None, told["card"]) == gpu.RESULTS / "nvidia-h200.json"
    assert gpu.target("cuda", tmp_path / "x.json", told["card"]) == tmp_path / "x.json"
    assert gpu.simulated_row(told) == ("H200-SXM5-141GB", "PCIe5-x16")
    cuda[1] = "NVIDIA A100-SXM4-40GB"
    with pytest.raises(RuntimeError, match="one kind"):
        gpu.origin(found)


def test_without_nvidias_tool_the_driver_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.driver() == "unknown"


def test_a_torch_for_other_cards_is_no_cuda(cuda, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)  # ROCm calls its devices cuda as well
    with pytest.raises(RuntimeError, match="found 0"):
        gpu.choose("cuda", None, None)


def test_every_known_card_has_its_row_and_link():
    for row, link in gpu.CARDS.values():
        assert sim.machines.build(1, row, link).gpu.name == row


def points(route, factor):
    made = []
    for n in (1024, 4096):
        value = factor * (1e-5 + n / 1e10)
        made.append({"size": {"value": n}, "seconds": records.quantity(value, "s", [0.9 * value, 1.5 * value])})
    return {"name": str(route), "points": made}


def test_a_cards_copies_are_held_against_the_simulated_cards():
    sim.enable(1)
    real = torch.device("cuda", 0)
    ends = [(torch.device("cpu"), real), (real, torch.device("cpu"))]
    routes = [Route(*e, pinned) for e in ends for pinned in (False, True)] + [Route(real, real)]
    found = parts.compared(("GTX 1080", "PCIe3-x16"), {"routes": [points(r, 2) for r in routes]}, {}, 4096, 1)
    assert len(found["rows"]) == 10
    for row in found["rows"]:
        assert row["ratio"]["value"] == pytest.approx(row["simulated"]["value"] / row["measured"]["value"])
        assert row["ratio"]["interval"][0] <= row["ratio"]["value"] <= row["ratio"]["interval"][1]


def test_a_simulation_that_fails_does_not_lose_what_was_measured(monkeypatch):
    def fail(*words, **options):
        raise RuntimeError("simulated GPUs need torch 2.11\nor later")

    monkeypatch.setattr(parts.sim, "is_enabled", lambda: False)
    monkeypatch.setattr(parts.sim, "enable", fail)
    found = parts.compared(("GTX 1080", "PCIe3-x16"), {"routes": []}, {}, 4096, 1)
    assert "torch 2.11" in found["note"]
    assert found["rows"] == []


def test_per_sample_gives_what_an_iterator_in_memory_gives():
    images = torch.arange(2 * 9, dtype=torch.uint8).reshape(2, 1, 3, 3) * 14
    data = epoch.PerSample(images, torch.tensor([7, 8]))
    X, y = next(iter(torch.utils.data.DataLoader(data, batch_size=2)))
    assert torch.equal(X, images.float() / 255)
    assert y.tolist() == [7, 8]
    assert len(data) == 2
