"""A replica a process against the same replicas in one process: the same bits, whatever the batch and the settings."""

import re

import process_cases
import pytest
import torch

from d2lmini.distributed import RankError, run

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module", params=[2, 3])
def trained(request):
    """The results of so many processes, rank by rank."""
    return request.param, run(process_cases.train_all, request.param, timeout=300, threads=1)


def test_processes_give_the_parameters_of_one_process_with_as_many_replicas(trained):
    k, ranks = trained
    in_one = {name: process_cases.train(name, ["cpu"] * k) for _, name in ranks[0]}
    for engine, name in ranks[0]:
        alone = in_one[name]
        for rank, found in enumerate(results[engine, name] for results in ranks):
            assert equal(found["model"], ranks[0][engine, name]["model"]), (name, engine, rank)  # to the last bit
            exact = engine == "allreduce" or k < 3  # gloo adds three numbers in an order of its own
            if exact:
                assert equal(found["model"], alone["model"]), (name, engine, rank)
                assert equal(found["buffers"][0], alone["buffers"][rank]), (name, engine, rank)
                assert (found["loss"], found["accuracy"]) == (alone["loss"], alone["accuracy"]), (name, engine, rank)
            for key in alone["model"]:
                tolerance = {"rtol": 1e-9, "atol": 1e-12} if alone["model"][key].dtype == torch.float64 else {}
                torch.testing.assert_close(found["model"][key], alone["model"][key], **tolerance)
            assert found["loss"] == pytest.approx(alone["loss"], rel=1e-6)
            assert found["step"] == pytest.approx(alone["step"], rel=1e-6)
            assert found["groups"] == alone["groups"]


def test_random_numbers_of_replicas_are_their_own_and_those_of_batches_are_common():
    ranks = run(process_cases.own_numbers, 2, (0, 0, 1), threads=1)
    (first, *common), (second, *also_common) = (found[0] for found in ranks)
    assert common[0] == also_common[0]
    assert torch.equal(common[1], also_common[1])
    assert [len(masks) for masks in (first, second)] == [2, 1]
    assert first[0][0] != second[0][0]
    assert [found[1][0] for found in ranks] == [first, second]  # again
    assert ranks[0][2][0] != first


def test_killed_at_any_moment_and_resumed_is_never_killed_whatever_the_engine(tmp_path):
    whole = run(process_cases.train_saved, 2, "allreduce", threads=1)
    assert same(whole[0], whole[1])
    file = str(tmp_path / "c.pt")
    for engine, victims, moment in (("allreduce", [1], 3), ("ddp", [0, 1], 12)):
        with pytest.raises(RankError, match="SIGKILL"):
            run(process_cases.train_saved, 2, engine, file, victims, moment, threads=1)
        assert (tmp_path / "c.pt").exists() == (moment > 8)  # saved after each epoch of eight batches
    for rank in run(process_cases.train_saved, 2, "ddp", file, threads=1):
        assert same(rank, whole[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.pt", "c.pt.previous"]


def same(a, b):
    return all(torch.equal(p, q) for p, q in zip(a[0], b[0], strict=True)) and a[1:] == b[1:]


def test_processes_go_on_from_one_process_and_one_process_from_them(tmp_path):
    whole, data = process_cases.saved_trainer(["cpu"] * 2, "replicas", dropout=0.0)
    losses = whole.fit(data, 3).loss
    first, data = process_cases.saved_trainer(["cpu"] * 2, "replicas", dropout=0.0)
    file, other = tmp_path / "c.pt", tmp_path / "other.pt"
    first.fit(data, 1, checkpoint=file)
    other.write_bytes(b"no checkpoint")
    ranks = run(process_cases.go_on, 2, file, other, threads=1)
    assert [said for _, said in ranks] == [ranks[0][1]] * 2
    assert ranks[0][1].startswith(f"{other}: is no checkpoint of the trainer")
    last, data = process_cases.saved_trainer(["cpu"] * 2, "replicas", dropout=0.0)
    assert last.fit(data, 3, checkpoint=file, resume=True).loss == losses
    assert "2 processes (allreduce)" in last.history.provenance
    assert equal(last.replicas[0].state_dict(), whole.replicas[0].state_dict())


def test_what_makes_no_sense_or_goes_wrong_is_one_line_on_every_rank():
    for engine, words in (("ddp", "engine: .*torchrun"), ("horovod", "engine: .*'horovod'")):
        with pytest.raises(ValueError, match=words):
            process_cases.Trainer(process_cases.network(), process_cases.MEAN, process_cases.MOMENTUM, engine=engine)
    differences = (
        "model.*1.weight",
        "loss.*sum",
        "lr is 1.1",
        "buckets is 301",
        "name is ddp",
        "clip is 2",
        "batch_size is 6",
        "seed is 1",
        "labels",
        "epochs is 2",
    )
    refusals = (
        "cpu, cpu",
        "allreduce: ddp",
        "allreduce: .*'rign'",
        "no part in the loss",
        "overlap: ddp",
        "SyncBatchNorm",
    )
    for diverged, unlike, refused, batches in run(process_cases.complaints, 2, threads=1):
        assert re.match(r"the loss is nan in epoch 1, batch 2, on cpu \(rank 1\)", diverged)
        for line, word in zip(unlike, differences, strict=True):
            assert re.match(f"rank 1 has other .*{word}", line), (line, word)
        for line, word in zip(refused, refusals, strict=True):
            assert re.search(word, line)
        for said, (number, word) in zip(
            batches, ((3, "no batch left"), (2, "checksum"), (3, "10 examples")), strict=True
        ):
            for line in said[::2]:
                assert re.match(f"rank 1 has .*{word}.* in epoch 1, batch {number}, where rank 0", line)
            for line in said[1::2]:
                assert line.startswith("rank 1 has 20 examples to evaluate on, rank 0 has 10")
