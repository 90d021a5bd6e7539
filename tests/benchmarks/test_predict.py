import csv
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import predict
import runs

RUN = {"system": "DGX A100", "gpu": "A100-80GB", "count": "1", "network": "ResNet-50 inference", "precision": "TF32",
       "batch": "1", "metric": "images_per_s", "value": "96", "source": "NVIDIA/DeepLearningExamples"}  # fmt: skip
PRODUCT = {"gpu": "H100", "m": "4096", "n": "4096", "k": "4096", "latency_ms": "0.2"}
COLLECTIVE = {"gpu": "A100-SXM4-80GB", "op_name": "all_reduce", "nccl_dtype": "half", "num_gpus": "8",
              "bytes": "1048576", "latency_ms": "0.05"}  # fmt: skip


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


@pytest.mark.parametrize("row", [PRODUCT, COLLECTIVE, RUN])
def test_every_form_gives_a_list_in_the_files_order(row, tmp_path, capsys):
    rows = [row, row | {"gpu": "Abacus 1"}, row]
    out = tmp_path / "out.json"
    predict.main(["--rows", write(tmp_path / "rows.csv", rows), "--json", str(out)])
    first, missed, last = json.loads(out.read_text("utf-8"))
    assert first == last
    assert set(first) == set(predict.COLUMNS)
    assert first["error"] == pytest.approx(first["simulated"] / first["published"] - 1)
    assert abs(first["error"]) < 0.5
    assert missed["error"] is None
    assert "GTX 980" in missed["reason"] + "GTX 980" * ("choose" in missed["reason"])
    assert "missed" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [
    {"network": "ELIZA"}, {"precision": "FP4"}, {"system": "x", "source": "y"}, {"metric": "jokes_per_s"},
    {"batch": "some MB", "metric": "busbw_GB_s"},
])  # fmt: skip
def test_what_is_not_known_is_missed_with_what_there_is(wrong):
    (result,) = predict.predict([RUN | wrong])
    assert result["simulated"] is result["error"] is None
    assert any(word in result["reason"] for word in ("choose one of", "expected"))
    assert "\n" not in result["reason"]


def test_files_that_cannot_be_read_are_refused(tmp_path):
    for rows in ("nowhere.csv", write(tmp_path / "form.csv", [{"a": 1}])):
        with pytest.raises(SystemExit, match="predict"):
            predict.main(["--rows", rows])
    empty = tmp_path / "empty.csv"
    empty.write_text("a,b\n")
    with pytest.raises(SystemExit, match="none"):
        predict.main(["--rows", str(empty)])


def test_ratios_compare_runs_that_differ_in_one_thing():
    told = (("A", "1", "FP32", "1", "10"), ("A", "8", "FP32", "1", "80"), ("B", "1", "FP32", "8", "10"),
            ("B", "1", "AMP", "16", "30"), ("C", "1", "TF32", "1", "10"), ("C", "1", "TF32", "4", "20"))
    names = ("network", "count", "precision", "batch", "value")
    rows = [RUN | dict(zip(names, row)) for row in told]
    results = [{"published": float(row["value"]), "simulated": 2 * float(row["value"]), "error": 1} for row in rows]
    assert predict.ratios(rows, results) == {"more GPUs to 1": [(8, 8)], "16 bits to 32": [(3, 3)],
                                             "batch to 1": [(2, 2)]}  # fmt: skip


def test_gradients_hidden_behind_backward_cost_nothing():
    run = runs.read(RUN | {"network": "BERT-base SQuAD", "count": "8", "batch": "global 64", "precision": "AMP"})
    assert (run.batch, run.network) == (8, "BERT-base SQuAD")
    assert runs.gradients_seconds(run, 10**8) > 0
    assert runs.gradients_seconds(runs.replace(run, count=1), 10**8) == 0
