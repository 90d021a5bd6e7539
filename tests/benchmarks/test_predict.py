import csv
import json
import math
import re
from functools import partial

import predict
import pytest
import runs
import stacks
import torch
from bert import Bert
from networks import TransformerXL, efficientnet, resnet56, resnext101, vgg16

from d2lmini.measuring import profile
from d2lmini.models import GPT2, resnet50
from simgpu.hardware import MACHINES, cluster, collective_costs

RUN = {
    "system": "DGX A100",
    "gpu": "A100-80GB",
    "count": "1",
    "network": "ResNet-50 inference",
    "precision": "TF32",
    "batch": "1",
    "metric": "images_per_s",
    "value": "96",
    "source": "NVIDIA/DeepLearningExamples",
}
PRODUCT = {"gpu": "H100", "m": "4096", "n": "4096", "k": "4096", "latency_ms": "0.2"}
COLLECTIVE = {
    "gpu": "A100-SXM4-80GB",
    "op_name": "all_reduce",
    "nccl_dtype": "half",
    "num_gpus": "8",
    "bytes": "1048576",
    "latency_ms": "0.05",
}
ON_RANKS = {
    "system": "HF cluster",
    "gpu": "H100",
    "count": "2",
    "network": "3B, TP",
    "precision": "bf16",
    "batch": "seq 4096, mbs 3..20",
    "metric": "tokens_per_s_per_gpu",
    "value": "13923",
    "source": "x",
}


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


@pytest.mark.parametrize("row", [PRODUCT, COLLECTIVE, RUN | {"network": "EfficientNet-B0 inference", "value": "130"}])
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


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        *(
            (RUN, wrong)
            for wrong in (
                {"network": "ELIZA"},
                {"precision": "FP4"},
                {"system": "x", "source": "y"},
                {"metric": "jokes_per_s"},
                {"batch": "some MB", "metric": "busbw_GB_s"},
                {"gpu": ""},
                {"gpu": "H100 NVL"},
                {"count": "eight"},
                {"network": "modded GPT-2 124M"},
                {"count": "32", "gpu": "RTX 3090", "network": "ResNet-50"},
                {"batch": "0"},
                {"batch": "not told", "network": "SSD300"},
                {"value": "nan"},
                {"value": "-1"},
                {"metric": "tokens_per_s"},
                {"source": "NVIDIA/DeepLearningExamples:TensorFlow"},
                {"metric": "busbw_GB_s", "network": "all_reduce", "batch": "1 MB", "count": "1"},
            )
        ),
        *(
            (COLLECTIVE, wrong)
            for wrong in (
                {"gpu": "H900"},
                {"op_name": "all_shout"},
                {"nccl_dtype": "quarter"},
                {"num_gpus": "12"},
                {"gpu": "L40S", "num_gpus": "16"},
            )
        ),
        *(
            (ON_RANKS, wrong)
            for wrong in (
                {"network": "Llama-3.1-405B", "precision": "bf16 FSDP"},
                {"precision": "FSDP+Float8"},
                {"count": "512"},
                {"count": "1"},
                {"metric": "images_per_s"},
                {"gpu": "H900"},
                {"count": "many"},
            )
        ),
    ],
)
def test_what_is_not_known_is_missed_with_what_there_is(row, wrong):
    (result,) = predict.predict([row | wrong])
    assert result["simulated"] is result["error"] is None
    assert re.match("[^\n]*(choose one of|expected)[^\n]*$", result["reason"])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("A100 80GB PCIe", "A100-PCIe-80GB"),
        ("4x2080Ti", "RTX 2080 Ti"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("QuadroRTX8000", "Quadro RTX 8000"),
        ("RTX 6000Ada", "RTX 6000 Ada"),
        ("Tesla T4 16 GB", "T4"),
        ("A10", "A10"),
        ("H100-80GB-HBM3", "H100-SXM5-80GB"),
        ("LambdaCloud 8xV100 16GB", "V100-SXM2-16GB"),
        ("1080Ti", "GTX 1080 Ti"),
        ("GTX 1080", "GTX 1080"),
        ("h200_sxm", "H200-SXM5-141GB"),
        ("P100", "P100-PCIe-16GB"),
        ("A6000", "RTX A6000"),
        ("Lambda 8x H100 80GB PCIe Gen5", "H100-PCIe-80GB"),
        ("1CC 8x H100 80GB SXM5", "H100-SXM5-80GB"),
    ],
)
def test_cards_as_vendors_and_tables_write_them(name, meant):
    assert runs.card(name) == meant


def test_every_card_means_itself():
    assert [stacks.named_card(name) for name in stacks.GPUS] == [(name, None) for name in stacks.GPUS]


OPEN = "FP32 config (whether TF32 is on is not stated)"  # then it is the default of its time


@pytest.mark.parametrize(
    ("text", "gpu", "meant"),
    [
        *(
            (text, "A100-SXM4-80GB", meant)
            for text, meant in (
                ("FP32", "FP32"),
                ("float32", "FP32"),
                ("tf32", "TF32"),
                ("Mixed precision", "AMP"),
                ("AMP/FP16", "AMP"),
                ("half", "FP16"),
                ("BF16", "bf16"),
                ("bfloat16 FSDP", "bf16"),
            )
        ),
        (OPEN, "RTX 3090", "TF32"),
        (OPEN, "V100-SXM2-16GB", "FP32"),
    ],
)
def test_precisions_as_tables_write_them(text, gpu, meant):
    found, assumed = stacks.precision(text, gpu)
    assert (found, assumed is not None) == (meant, gpu == "RTX 3090")


@pytest.mark.parametrize(
    ("text", "found", "assumed"),
    [
        *(
            (text, found, None)
            for text, found in (
                ("256", (256, 1)),
                ("16/GPU", (16, 1)),
                ("64 per GPU", (64, 1)),
                ("global 256", (32, 1)),
                ("local 2", (2, 1)),
                ("524288 tokens/step, 64/GPU", (64, 1)),
                ("524288 tokens/step, 32/GPU", (32, 2)),
                ("491520 tokens/iter (12*1024*5*8)", (12, 5)),
                ("batch size 48", (48, 1)),
            )
        ),
        ("491520 tokens/iter", (12, 5), "batch 12, of its program's settings"),
    ],
)
def test_batches_as_tables_write_them(text, found, assumed):
    stack = stacks.STACKS["nanoGPT"]
    assert stacks.batch(text, 8, "GPT-2 124M", "bf16", stack, "A100-SXM4-80GB") == (*found, assumed)


def test_a_batch_is_the_one_that_the_settings_have_for_network_precision_and_memory():
    row = RUN | {"batch": "config_v2", "network": "ResNet-50", "source": "lambdal/deeplearning-benchmark"}
    wanted = [
        ("H100", "AMP", 1280),
        ("H100", "FP32", 640),
        ("GH200", "AMP", 1360),
        ("H200", "TF32", 1280),
        ("B200", "AMP", 3328),
    ]
    for gpu, precision, batch in wanted:
        assert runs.read(row | {"gpu": gpu, "precision": precision}).batch == batch
    with pytest.raises(ValueError, match="24 GiB"):
        runs.read(row | {"gpu": "RTX 3090", "precision": "AMP"})
    with pytest.raises(ValueError, match="bf16"):
        runs.read(row | {"gpu": "H100", "precision": "bf16"})


def test_a_batch_that_no_memory_holds_is_missed_and_the_rows_after_it_are_not():
    large = RUN | {"network": "BERT-large pretrain seq512", "batch": "1000000", "metric": "sequences_per_s"}
    missed, found = predict.predict([large, RUN])
    assert "out of memory" in missed["reason"]
    assert found["simulated"] > 0


def test_a_step_is_timed_whole_whatever_its_rate_counts():
    row = RUN | {"network": "GPT-2 124M", "batch": "12", "precision": "bf16", "source": "nanoGPT"}
    rate, step = predict.predict([row | {"metric": "tokens_per_s"}, row | {"metric": "ms_per_step"}])
    assert rate["simulated"] * step["simulated"] / 1e3 == pytest.approx(12 * 1024)


def test_translation_does_the_arithmetic_of_its_layers():
    run = runs.read(RUN | {"network": "GNMT", "batch": "256", "gpu": "V100", "precision": "FP32"})
    source, target = 2 * 8 + 12 + 2 * 8 + 1, 8 + 3 * 12 + 1 + 31.25  # of 2**20 weights that each word meets
    flops = 6 * 2**20 * 256 * runs._PLACES * (source + target)
    step = runs.one_gpu(run)
    assert 1 < step.forward_s * 15.7e12 / flops < 1.6
    assert step.gradient_bytes == pytest.approx(4 * 2**20 * (source + target + 31.25), rel=0.01)


def test_a_cluster_of_amazons_pays_for_its_network():
    """The same GPUs, operation and bytes over a DGX H100's network and over a p5's; inside a node there is none."""
    row = RUN | {"gpu": "H100", "network": "all_gather", "batch": "256 MB", "metric": "busbw_GB_s"}
    for count, slower in (("8", 1), ("128", 0.8)):
        near, far = predict.predict([row | {"count": count, "system": name} for name in ("DGX", "HF cluster")])
        assert far["simulated"] <= slower * near["simulated"]
        assert ("p5" in far["assumed"]) == (count == "128")


def test_rings_over_nodes_are_taken_for_the_cluster_that_was_seen_to_take_them():
    """A ring of 64 nodes has 126 hops of 75 µs between nodes; a tree, 12."""
    row = RUN | {"gpu": "H100", "network": "all_reduce", "batch": "1 MB", "metric": "busbw_GB_s", "count": "512"}
    rings, own = predict.predict([row | {"system": name} for name in ("HF cluster", "p5.48xlarge")])
    assert own["simulated"] > 4 * rings["simulated"]
    assert ("rings" in rings["assumed"], "rings" in own["assumed"]) == (True, False)


def test_unpadded_words_slow_gpt2_down():
    row = RUN | {"network": "GPT-2 124M", "batch": "12", "precision": "bf16", "metric": "tokens_per_s"}
    early, later = predict.predict([row | {"source": f"nanoGPT, {when}"} for when in ("torch 2.0 nightly", "2024")])
    assert 1.05 < later["simulated"] / early["simulated"] < 1.25


def test_data_parallel_runs_of_any_count_are_told_their_nodes():
    row = RUN | {
        "gpu": "H100",
        "network": "Llama-like 1B, DP only",
        "precision": "bf16",
        "batch": "seq 4096",
        "metric": "tokens_per_s_per_gpu",
        "source": "nanotron-ultrascale-playbook",
    }
    run = runs.read(row)
    machines = [runs.machine(run.gpu, count, nodes=run.stack.nodes).name for count in (8, 512)]
    assert machines == ["8 × H100-SXM5-80GB, NVLink4", "64 × p5.48xlarge"]
    (one,) = predict.predict([row])
    assert one["simulated"] == pytest.approx(40_000, rel=0.3)


def test_what_a_row_leaves_open_is_told():
    rows = [RUN | {"gpu": "A100"}, RUN | {"network": "ResNet-50", "batch": "default"}, RUN | {"gpu": "A100-80GB PCIe"}]
    card, batch, nothing = (result["assumed"] for result in predict.predict(rows))
    assert "A100-SXM4-80GB" in card
    assert "256" in batch
    assert nothing is None


@pytest.mark.parametrize(
    ("lines", "named", "meant"),
    [
        ("630-638", ("A100-SXM4-80GB", "TF32"), ("V100-SXM2-16GB", "FP32")),
        ("644-652", ("A100-SXM4-80GB", "AMP"), ("V100-SXM2-16GB", "AMP")),
        ("676-684", ("T4", "AMP"), ("T4", "AMP")),
        ("594-615", ("A100-SXM4-80GB", "TF32"), ("A100-SXM4-80GB", "TF32")),
    ],
)
def test_inference_is_of_the_card_under_which_its_source_has_it(lines, named, meant):
    source = f"NVIDIA/DeepLearningExamples@729963dd:PyTorch/Classification/ConvNets/resnet50v1.5/README.md L{lines}"
    run = runs.read(RUN | dict(zip(("gpu", "precision"), named)) | {"source": source})
    assert (run.gpu, run.precision) == meant
    assert any("its source has it under" in told for told in run.assumed) == (meant[0][:2] != named[0][:2])


def test_more_gpus_than_a_node_holds_are_nodes():
    assert (runs.machine("A100-SXM4-40GB", 8).count, runs.machine("A100-SXM4-40GB", 64).nodes) == (8, 8)
    assert runs.machine("A100-SXM4-40GB", 64).network == MACHINES["DGX-A100"].network  # Amazon's have slower links
    assert runs.machine("H200-SXM5-141GB", 16, most=8).node == MACHINES["8xH200"]


@pytest.mark.parametrize(
    ("row", "machine", "gpus"),
    [
        ({"gpu": "H100-80GB-HBM3"}, MACHINES["DGX-H100"], 8),
        ({"op_name": "alltoall", "num_gpus": "16"}, cluster(MACHINES["DGX-A100"], 2), 16),
        ({"gpu": "V100-SXM2-32GB", "op_name": "alltoall", "num_gpus": "16"}, cluster(MACHINES["DGX-1-V100"], 2), 16),
    ],
)
def test_collectives_run_on_the_machine_of_their_cards(row, machine, gpus):
    (found,) = predict.predict([COLLECTIVE | row])
    expected = collective_costs.seconds((COLLECTIVE | row)["op_name"], machine, gpus, 2**20)
    assert found["simulated"] == expected * 1e3


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ({"op_name": "AllReduce", "nccl_dtype": "fp16"}, {}),
        ({"op_name": "all-gather"}, {"op_name": "all_gather"}),
        ({"op_name": "all_to_all"}, {"op_name": "alltoall"}),
        ({"bytes": "1048576.0"}, {}),
    ],
)
def test_collectives_as_tables_write_them(spelled, meant):
    given, plain = predict.predict([COLLECTIVE | spelled, COLLECTIVE | meant])
    assert given["simulated"] == plain["simulated"]


def test_products_of_a_card_without_bfloat16_are_told_to_be_float16():
    (result,) = predict.predict([PRODUCT | {"gpu": "T4"}])
    assert "float16" in result["assumed"]
    assert 2 * 4096**3 / 65e12 < result["simulated"] / 1e3 < 4 * 2 * 4096**3 / 65e12


def test_columns_more_and_cells_less_are_no_reason_to_stop(tmp_path):
    names = [*RUN, "note"]
    lines = [",".join(names), ",".join([*RUN.values(), "x", "one too many"]), "a,b", ""]
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())
    whole, part = predict.predict(predict.read(tmp_path / "rows.csv"))
    assert whole["error"] is not None
    assert part["error"] is None
    (tmp_path / "bytes.csv").write_bytes(b"gpu,m\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match="UTF-8"):
        predict.read(tmp_path / "bytes.csv")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    for rows in ("nowhere.csv", write(tmp_path / "form.csv", [{"a": 1}])):
        with pytest.raises(SystemExit, match="predict"):
            predict.main(["--rows", rows])
    empty = tmp_path / "empty.csv"
    empty.write_text("a,b\n")
    with pytest.raises(SystemExit, match="none"):
        predict.main(["--rows", str(empty)])
    with pytest.raises(SystemExit, match="nowhere"):
        predict.main(["--rows", write(tmp_path / "rows.csv", [PRODUCT]), "--json", str(tmp_path / "nowhere" / "out")])


def test_ratios_compare_runs_that_differ_in_one_thing():
    told = (
        ("A", "1", "FP32", "1", "10"),
        ("A", "8", "FP32", "1", "80"),
        ("B", "1", "FP32", "8", "10"),
        ("B", "1", "AMP", "16", "30"),
        ("C", "1", "TF32", "1", "10"),
        ("C", "1", "TF32", "4", "20"),
    )
    names = ("network", "count", "precision", "batch", "value")
    rows = [RUN | dict(zip(names, row)) for row in told]
    results = [{"published": float(row["value"]), "simulated": 2 * float(row["value"]), "error": 1} for row in rows]
    assert predict.ratios(rows, results) == {
        "more GPUs to 1": [(rows[1], 8, 8)],
        "16 bits to 32": [(rows[3], 3, 3)],
        "batch to 1": [(rows[5], 2, 2)],
    }


def test_gradients_hidden_behind_backward_cost_nothing():
    run = runs.read(RUN | {"network": "BERT-base SQuAD", "count": "8", "batch": "global 64", "precision": "AMP"})
    assert (run.batch, run.network) == (8, "BERT-base SQuAD")
    assert runs.gradients_seconds(run, 10**8) > 0
    assert runs.gradients_seconds(runs.replace(run, count=1), 10**8) == 0


# As torchvision's and timm's documentation and Hugging Face's configurations have them.
@pytest.mark.parametrize(
    ("make", "count"),
    [
        (partial(resnet50, depths=(3, 4, 23, 3)), 44_549_160),
        (resnet56, 855_770),
        (vgg16, 138_357_544),
        (resnext101, 44_177_704),
        (partial(resnext101, squeeze=True), 48_955_416),
        (efficientnet, 5_288_548),
        (partial(efficientnet, 1.4, 1.8), 19_341_616),
        (partial(GPT2, width=1600, layers=48, heads=25), 1_557_611_200),
        (Bert, 109_482_240),
        (runs.BERT_LARGE, 335_141_888),
    ],
)
def test_networks_have_their_published_parameters(make, count):
    with torch.device("meta"):
        assert sum(p.numel() for p in make().parameters()) == count


def test_a_host_belongs_to_its_machine():
    beside = {gpu: runs.read(RUN | {"gpu": gpu}).stack.mode for gpu in ("V100-16GB", "A100-SXM4-40GB")}
    assert beside["V100-16GB"] != beside["A100-SXM4-40GB"]
    lambdas = RUN | {"source": "lambdal/deeplearning-benchmark", "gpu": "A100"}
    assert runs.read(lambdas).stack.mode == beside["V100-16GB"]


def test_transformer_xl_scores_rare_words_in_their_groups_and_trains_all_it_has():
    model = TransformerXL(width=64, layers=1, heads=1, hidden=8, shrink=4)
    with torch.no_grad():
        model.biases.zero_()
    out = model(torch.zeros(40, 10, dtype=torch.int64))
    assert out.shape == (40, 10, 64)
    assert model.loss(out * 0).item() == pytest.approx(sum(map(math.log, (20_000, 20_000, 160_000, 67_735))))
    model.loss(out).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_bert_reads_the_whole_sequence():
    torch.manual_seed(0)
    model = Bert(16, 2, 2, 11, 8).eval()
    tokens = torch.randint(11, (1, 8))
    other = tokens.clone()
    other[0, 7] = (other[0, 7] + 1) % 11
    x, first = model(tokens)
    assert (x.shape, first.shape) == ((1, 8, 16), (1, 16))
    assert not torch.allclose(x[0, 0], model(other)[0][0, 0])


def test_resnet56_does_its_published_arithmetic():
    with torch.device("meta"):
        assert round(profile(resnet56(), torch.empty(1, 3, 32, 32)).macs / 1e9, 2) == 0.13


@pytest.mark.parametrize(
    ("more", "meant"),
    [
        ({}, ("2 × H100-SXM5-80GB, NVLink4", "TP", 3, 4096, "eager")),
        ({"count": "16"}, ("2 × p5.48xlarge", "TP", 16, 4096, "eager")),
        ({"precision": "bf16 FSDP", "network": "1B"}, ("2 × H100-SXM5-80GB, NVLink4", "FSDP2", 3, 4096, "eager")),
        (
            {
                "gpu": "H100-96GB",
                "count": "8",
                "network": "Llama-3.1-8B selective AC",
                "precision": "bf16 FSDP+compile",
                "batch": "local 2",
            },
            ("8 × H100-96GB, HBM2e of 2.4 TB/s", "FSDP2", 2, 8192, "compiled"),
        ),
    ],
)
def test_runs_on_ranks_are_read_with_their_machine_and_batch(more, meant, monkeypatch):
    asked = []
    monkeypatch.setattr(predict.on_ranks, "_simulate", lambda *args: asked.append(args) or (100.0, 50.0))
    rate, peak = predict.predict([ON_RANKS | more, ON_RANKS | more | {"metric": "peak_memory_GiB"}])
    assert (rate["simulated"], peak["simulated"]) == (100.0, 50.0)
    assert rate["band"] != peak["band"]
    machine, _, kind, sequences, length, way = asked[0]
    assert (machine.name, kind, sequences, length, way) == meant
