"""Recorded runs: what is written is read again, bad files are refused in one line, the figures show what is there."""

import copy
import json
import re

import pytest

from d2lmini.figures import result_figures
from d2lmini.figures.plots import svg
from d2lmini.measuring import results
from d2lmini.measuring.results import ResultError, quantity


def seconds(value):
    return quantity(value, "s", [0.9 * value, 1.2 * value], 9)


def result():
    """A whole result with invented figures; it goes nowhere but into a test's folder."""
    points = [{"size": quantity(n, "bytes"), "seconds": seconds(1e-5 + n / 2e10)} for n in (1024, 2048, 4096)]
    route = {"alpha": quantity(1e-5, "s", [9e-6, 1.1e-5]), "beta": quantity(2e10, "bytes/s"), "points": points}
    pair = {"simulated": quantity(2e-3, "s"), "measured": seconds(1e-3), "ratio": quantity(2.0, "1", [1.6, 2.2])}
    pair["measured"]["interval"] = [9e-4, 1.25e-3]
    return {
        "schema": 1,
        "origin": {
            "device": "cuda", "card": "Card <1>", "cards": 2, "driver": "1.2", "torch": "2.13.0", "cuda": "13.0",
            "date": "2026-01-02", "host_cpu": "Host", "clock": "measured", "provenance": "measured on Host",
        },
        "training": {"network": "LeNet", "data": "digits", "images": 100, "batch_size": 10,
                     "epochs": [{"name": "plain", "seconds": seconds(0.5)}, {"name": "full", "seconds": seconds(0.1)}]},
        "copies": {"routes": [{"name": "cpu → cuda:0, pinned", **route}]},
        "simulated": {"note": "simulated on a card", "rows": [{"name": "step", **pair}]},
        "scaling": {"note": "one process", "rows": [
            {"devices": 1, "seconds": seconds(0.1)},
            {"devices": 2, "seconds": seconds(0.08), "allreduce": seconds(1e-3), "size": quantity(4096, "bytes"),
             "busbw": quantity(4e9, "bytes/s")}]},
    }  # fmt: skip


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "card.json"
    results.write(path, result())
    assert results.read(path) == (path, result())
    (tmp_path / "another.json").write_text(path.read_text().replace("Card <1>", "Another"))
    (tmp_path / "memory.json").write_text("[]")  # of the benchmark of the memory hierarchy
    (tmp_path / "notes.txt").write_text("no result")
    assert [found["origin"]["card"] for found in results.load(tmp_path)] == ["Another", "Card <1>"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["another.json", "card.json", "memory.json", "notes.txt"]


def test_nothing_recorded_is_an_empty_list(tmp_path):
    assert results.load(tmp_path) == results.load(tmp_path / "missing") == []


def changed(*places, value=None, drop=False):
    made = result()
    *path, last = places
    holder = made
    for place in path:
        holder = holder[place]
    if drop:
        del holder[last]
    else:
        holder[last] = value
    return made


EPOCH = ("training", "epochs", 0, "seconds")


@pytest.mark.parametrize(("bad", "line"), [
    ([], "a result: expected an object, got []"),
    (changed("schema", value=2), "schema: expected 1, got 2"),
    (changed("origin", drop=True), "origin: expected an object, got None"),
    (changed("origin", "driver", drop=True), "origin.driver: expected a text that is not empty, got None"),
    (changed("origin", "card", value=""), "origin.card: expected a text that is not empty, got ''"),
    (changed("origin", "cards", value=0), "origin.cards: expected a whole number of at least 1, got 0"),
    (changed("origin", "cards", value=True), "origin.cards: expected a whole number of at least 1, got True"),
    (changed("origin", "date", value="2 Jan"), "origin.date: expected YYYY-MM-DD, got '2 Jan'"),
    (changed("origin", "clock", value="wall"), "origin.clock: expected measured or simulated, got 'wall'"),
    (changed("training", "images", value=1.5), "training.images: expected a whole number of at least 1, got 1.5"),
    (changed("training", "epochs", value=[]), "training.epochs: expected 1 entries or more, got 0"),
    (changed("training", "epochs", 0, value=3), "training.epochs[0]: expected an object, got 3"),
    (changed(*EPOCH, value=0.5), "training.epochs[0].seconds: expected an object, got 0.5"),
    (changed(*EPOCH, "unit", value="ms"), "training.epochs[0].seconds.unit: expected s, got 'ms'"),
    (changed(*EPOCH, "unit", drop=True), "training.epochs[0].seconds.unit: expected s, got None"),
    (changed(*EPOCH, "value", value=0), "training.epochs[0].seconds.value: expected a number above 0, got 0"),
    (changed(*EPOCH, "value", value="1"), "training.epochs[0].seconds.value: expected a number above 0, got '1'"),
    (changed(*EPOCH, "interval", value=[0.6, 0.7]), "training.epochs[0].seconds.interval: expected two ends around"),
    (changed(*EPOCH, "interval", value=[0.4]), "training.epochs[0].seconds.interval: expected two ends around"),
    (changed("copies", "routes", 0, "points", value=[]), "copies.routes[0].points: expected 3 entries or more, got 0"),
    (changed("copies", "routes", 0, "points", 1, "size", "unit", value="MB"),
     "copies.routes[0].points[1].size.unit: expected bytes, got 'MB'"),
    (changed("copies", "routes", 0, "beta", "unit", value="GB/s"), "copies.routes[0].beta.unit: expected bytes/s, got"),
    (changed("simulated", "rows", 0, "ratio", drop=True), "simulated.rows[0].ratio: expected an object, got None"),
    (changed("simulated", "note", drop=True), "simulated.note: expected a text that is not empty, got None"),
    (changed("scaling", "rows", 1, "busbw", drop=True), "scaling.rows[1].busbw: expected an object, got None"),
    (changed("scaling", "rows", 0, "devices", value=0), "scaling.rows[0].devices: expected a whole number"),
    (changed("origin", "device", value="sim"), "expected figures measured on a CUDA device, got measured ones on sim"),
    (changed("origin", "clock", value="simulated"), "expected figures measured on a CUDA device, got simulated ones"),
])  # fmt: skip
def test_a_bad_file_is_one_line_that_names_it(tmp_path, bad, line):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(bad))
    with pytest.raises(ResultError, match="^" + re.escape(f"{path}: {line}")) as raised:
        results.load(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1', "\x00"])
def test_a_file_that_is_no_json_is_told(tmp_path, text):
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(ResultError, match=r"card.json: cannot be read as JSON: "):
        results.load(tmp_path)


def test_a_bad_result_is_not_written_and_the_old_file_stays(tmp_path):
    path = tmp_path / "card.json"
    results.write(path, result())
    for bad in (changed("schema", value=0), changed(*EPOCH, "value", value=float("nan"))):
        with pytest.raises(ValueError, match=r"^(schema|training.epochs\[0\].seconds.value): expected"):
            results.write(path, bad)
    assert results.read(path)[1] == result()


def test_an_interval_without_an_end_is_left_out_and_alpha_may_lie_below_zero(tmp_path):
    assert quantity(1.0, "s", [0.5, float("inf")], 6) == {"value": 1.0, "unit": "s", "runs": 6}
    below = changed("copies", "routes", 0, "alpha", value=quantity(-1e-9, "s", [-1e-8, 1e-9]))
    results.write(tmp_path / "card.json", below)
    assert results.load(tmp_path) == [below]


@pytest.mark.parametrize(("card", "name"), [
    ("NVIDIA H200", "nvidia-h200"), ("Tesla V100-SXM2-16GB", "tesla-v100-sxm2-16gb"), ("  RTX/3090 (a) ", "rtx-3090-a"),
])  # fmt: skip
def test_slugs(card, name):
    assert results.slug(card) == name
    with pytest.raises(ValueError, match="holds no letter or digit"):
        results.slug("–")


def test_figures_show_every_row_and_say_so(tmp_path):
    found = result()
    made = list(result_figures.figures(found))
    texts = [svg(figure) and alt for figure, alt in made]
    assert [text.split(":")[0] for text in texts] == [
        "Card <1>, measured, seconds an epoch of LeNet, 100 images, batches of 10",
        "Card <1>, measured", "Card <1>, measured, seconds an epoch on several devices",
        "Card <1>, measured, simulated ÷ measured seconds"]  # fmt: skip
    ends = ("plain 500 ms; full 100 ms", "cpu → cuda:0, pinned: 10 µs + bytes ÷ 20 GB/s",
            "2 devices 80 ms; all-reduce on 2: busbw 4 GB/s", "step 2")  # fmt: skip
    assert all(text.endswith(end) for text, end in zip(texts, ends, strict=True))
    bars = made[0][0].axes[0]
    assert [bar.get_width() for bar in bars.patches] == [0.5, 0.1]
    assert [label.get_text() for label in bars.get_yticklabels()] == ["plain", "full"]
    assert bars.get_xlim()[1] > 0.6  # the interval's end
    fitted = made[1][0].axes[0].lines[-1]
    assert fitted.get_ydata()[0] == pytest.approx(1e-5 + 1024 / 2e10)


def test_parts_without_rows_have_no_figure():
    found = result()
    found["scaling"]["rows"], found["simulated"]["rows"] = [], []
    results.validate(found)
    assert len(list(result_figures.figures(found))) == 2


def test_a_chapter_shows_what_there_is(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(result_figures.plots, "show", lambda figure, alt: shown.append(alt))
    result_figures.show([])
    assert capsys.readouterr().out == "no results of a real card are recorded yet\n"
    assert shown == []
    second = copy.deepcopy(result())
    second["origin"]["card"] = "Other"
    result_figures.show([result(), second])
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["2 × Card <1>", "2 × Other"]
    assert len(shown) == 8
    assert all(shown)


def test_the_records_of_this_repository_are_good(request):
    for found in results.load(request.config.rootpath / "chapters" / "results"):
        assert found["origin"]["device"] == "cuda"
