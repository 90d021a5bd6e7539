"""A replica a process against the same replicas in one process: the same bits, whatever the batch and the settings."""

import process_cases
import pytest
import torch

from d2lmini.distributed import run


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module", params=[1, 2, 3])
def trained(request):
    """The results of so many processes, rank by rank."""
    return request.param, run(process_cases.train_all, request.param, timeout=300, threads=1)


def test_processes_give_the_parameters_of_one_process_with_as_many_replicas(trained):
    k, ranks = trained
    for engine, name in ranks[0]:
        alone = process_cases.train(name, ["cpu"] * k)
        for rank, found in enumerate(results[engine, name] for results in ranks):
            assert equal(found["model"], ranks[0][engine, name]["model"]), (name, engine, rank)  # to the last bit
            exact = engine == "allreduce" or k < 3  # gloo adds three numbers in an order of its own
            if exact and (k < 3 or name != "sync batch norm"):
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
    ranks = run(process_cases.own_numbers, 2, 0, threads=1)
    (first, *common), (second, *also_common) = ranks
    assert common[0] == also_common[0]
    assert torch.equal(common[1], also_common[1])
    assert [len(masks) for masks in (first, second)] == [2, 1]
    assert first[0][0] != second[0][0]
    again = run(process_cases.own_numbers, 2, 0, threads=1)
    assert [masks for masks, *_ in again] == [first, second]
    assert run(process_cases.own_numbers, 2, 1, threads=1)[0][0] != first
