import json

import pytest
import table7
import torch
from networks import NETWORKS


# Parameters of the published networks; the LSTM's are 2·4·(256·256·2 + 2·256) besides two tables of 10,000 × 256.
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("FCN-S", 118.00),
        ("AlexNet-S", 62.38),
        ("ResNet-50", 25.557),
        ("FCN-R", 14.206),
        ("ResNet-56", 0.856),
        ("LSTM", 6.183),
    ],
)
def test_networks_have_their_published_size(name, millions):
    model = table7.make(name)[0]
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize("name", ["ResNet-56", "FCN-R", "LSTM"])
def test_shapes_on_the_meta_device_are_those_of_real_data(name):
    module, shape = NETWORKS[name]
    small = (2, *shape[1:]) if name != "LSTM" else (3, 2)
    real = module()(torch.zeros(small, dtype=torch.int64 if name == "LSTM" else torch.float32))
    assert real.shape == (small[0] if name != "LSTM" else 6, table7.make(name)[0](table7.make(name)[2]).shape[1])


@pytest.mark.slow
def test_published_table_and_prediction():
    best = table7.published()
    assert best["FCN-S", "gtx980"] == (0.040, "Torch")
    assert best["ResNet-56", "k80"] == (0.270, "MXNet")
    table = table7.rows()
    assert [row["network"] for row in table[::2]] == list(NETWORKS)
    assert len(table) == 12
    assert table7.median(table) <= 0.30
    recorded = json.loads((table7.TABLE.parent.parent / "results" / "predict.json").read_text(encoding="utf-8"))
    again = "no longer what the code gives: run python benchmarks/table7.py --json chapters/results/predict.json"
    assert (recorded["rows"], recorded["median_error"]) == (table, table7.median(table)), again
