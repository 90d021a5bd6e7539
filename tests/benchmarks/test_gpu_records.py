"""Records: what is written is read again, bad files are refused in one line, the figures show what is there."""

import json

import pytest
import record_figures
import records
from records import quantity

from d2lmini.figures.plots import svg


def seconds(value):
    return quantity(value, "s", [0.9 * value, 1.2 * value], 9)


def record():
    """A whole record with invented figures; it goes nowhere but into a test's folder."""
    points = [{"size": quantity(n, "bytes"), "seconds": seconds(1e-5 + n / 2e10)} for n in (1024, 2048, 4096)]
    route = {"alpha": quantity(1e-5, "s", [9e-6, 1.1e-5]), "beta": quantity(2e10, "bytes/s"), "points": points}
    pair = {"simulated": quantity(2e-3, "s"), "measured": seconds(1e-3), "ratio": quantity(2.0, "1", [1.6, 2.2])}
    return {
        "schema": 1,
        "origin": {
            "device": "cuda",
            "card": "Card <1>",
            "cards": 2,
            "driver": "1.2",
            "torch": "2.13.0",
            "cuda": "13.0",
            "date": "2026-01-02",
            "host_cpu": "Host",
            "clock": "measured",
            "provenance": "measured on Host",
        },
        "training": {
            "network": "LeNet",
            "data": "digits",
            "images": 100,
            "batch_size": 10,
            "epochs": [{"name": "plain", "seconds": seconds(0.5)}, {"name": "full", "seconds": seconds(0.1)}],
        },
        "copies": {"routes": [{"name": "cpu → cuda:0, pinned", **route}]},
        "simulated": {"note": "simulated on a card", "rows": [{"name": "step", **pair}]},
        "scaling": {
            "note": "one process",
            "rows": [
                {"devices": 1, "seconds": seconds(0.1)},
                {"devices": 2, "seconds": seconds(0.08), "busbw": quantity(4e9, "bytes/s")},
            ],
        },
    }


def changed(*places, value=None):
    made = record()
    *path, last = places
    holder = made
    for place in path:
        holder = holder[place]
    holder[last] = value
    return made


def test_what_is_written_is_read_again(tmp_path):
    records.write(tmp_path / "card.json", record())
    records.write(tmp_path / "another.json", changed("origin", "card", value="Another"))
    (tmp_path / "memory.json").write_text("[]")  # of the benchmark of the memory hierarchy
    found = records.load(tmp_path)
    assert found == [changed("origin", "card", value="Another"), record()]
    assert len(list(tmp_path.iterdir())) == 3
    assert records.load(tmp_path / "missing") == []


EPOCH = ("training", "epochs", 0, "seconds")


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ([], "record"),
        (changed("schema", value=2), "schema"),
        (changed("origin", "driver"), "origin.driver"),
        (changed("origin", "device", value="sim"), "cuda"),
        (changed(*EPOCH, "unit", value="ms"), "seconds"),
        (changed(*EPOCH, "value", value=float("nan")), "seconds"),
        (changed("copies", "routes", 0, "points", 1, "size", "unit", value="MB"), r"points\[1\].size"),
        (changed("simulated", "rows", 0, "ratio"), "ratio"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it_and_the_place(tmp_path, bad, place):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(bad))
    with pytest.raises(ValueError, match=place) as raised:
        records.load(tmp_path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_a_bad_record_is_not_written_and_the_old_file_stays(tmp_path):
    path = tmp_path / "card.json"
    records.write(path, record())
    with pytest.raises(ValueError, match="schema"):
        records.write(path, changed("schema", value=0))
    assert records.load(tmp_path) == [record()]


def test_figures_show_every_row_and_say_so():
    made = list(record_figures.figures(record()))
    texts = [svg(figure) and alt for figure, alt in made]
    ends = ("plain 0.5; full 0.1", "cpu → cuda:0, pinned: 10 µs + bytes ÷ 20 GB/s", "2 × (busbw 4 GB/s) 0.08", "step 2")
    assert all(text.startswith("Card <1>, measured") for text in texts)
    assert all(text.endswith(end) for text, end in zip(texts, ends, strict=True))
    bars = made[0][0].axes[0]
    assert [bar.get_width() for bar in bars.patches] == [0.5, 0.1]
    assert [label.get_text() for label in bars.get_yticklabels()] == ["plain", "full"]
    assert bars.get_xlim()[1] > 0.6  # the interval's end


def test_the_records_of_this_repository_are_good(request):
    for found in records.load(request.config.rootpath / "chapters" / "results"):
        assert found["origin"]["device"] == "cuda"
