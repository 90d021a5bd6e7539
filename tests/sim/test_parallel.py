"""torch.nn.parallel runs unmodified on simulated GPUs; its gradients, tests/data_parallel compares."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm

import simgpu

pytestmark = pytest.mark.usefixtures("gpus")


def test_devices_by_name_buffers_and_another_output_device():
    net = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 2)).to("sim:1")
    many = nn.DataParallel(net, device_ids=[torch.device("sim:1"), "sim:2"], output_device=0)
    assert str(many(torch.randn(8, 5)).device) == "sim:0"
    assert net[0].num_batches_tracked.item() == 1  # the first replica's buffers are the module's own


def test_collective_copies():
    x = torch.arange(6, device="sim:0")
    copies = comm.broadcast(x, [0, 1, 2])
    assert [str(c.device) for c in copies] == ["sim:0", "sim:1", "sim:2"]
    assert [c.tolist() for c in copies] == [list(range(6))] * 3
    many = [torch.full((n,), n, dtype=d, device="sim:0") for n in (0, 1, 3) for d in (torch.float32, torch.int64)]
    for place, found in zip("01", comm.broadcast_coalesced(many, [0, 1], buffer_size=8), strict=True):
        assert [t.tolist() for t in found] == [t.tolist() for t in many]
        assert {str(t.device) for t in found} == {f"sim:{place}"}
    parts = comm.scatter(x, [1, 2], chunk_sizes=[5, 1])
    assert [p.tolist() for p in parts] == [[0, 1, 2, 3, 4], [5]]
    assert comm.gather(parts, 0, 3).tolist() == list(range(6))
    assert comm.reduce_add([p.clone() for p in copies], 0).tolist() == [3 * i for i in range(6)]
    outs = [torch.zeros(2, dtype=torch.int64, device=f"sim:{i}") for i in range(3)]
    comm.scatter(x, out=outs)
    assert [o.tolist() for o in outs] == [[0, 1], [2, 3], [4, 5]]
    assert comm.gather(outs, out=torch.empty(6, dtype=torch.int64)).tolist() == list(range(6))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: comm.scatter(torch.ones(6, device="sim:0"), [1, 2], chunk_sizes=[5, 2]), "sum up to 6"),
        (
            lambda: comm.gather([torch.ones(2, 2 + i, device=f"sim:{i}") for i in range(2)], 0, 0),
            "invalid size.* index 1",
        ),
    ],
)
def test_copies_that_do_not_fit(call, says):
    with pytest.raises(RuntimeError, match=says):
        call()


@pytest.mark.parametrize(("buffer_size", "copies"), [(10**6, 1), (8, 2), (1, 3)])
def test_small_tensors_travel_together(buffer_size, copies):
    simgpu.enable(2)
    tensors = [torch.ones(1, device="sim:0") for _ in range(3)]
    with simgpu.trace() as trace:
        comm.broadcast_coalesced(tensors, [0, 1], buffer_size)
    arrived = [span for span in trace.spans if span.kind == "copy" and span.place.endswith("gpu1 in")]
    assert len(arrived) == copies


def test_an_error_in_a_replica_names_its_place():
    class Faulty(nn.Module):
        def forward(self, x):
            if x.get_device() == 1:
                raise KeyError("mine")
            return x

    with pytest.raises(KeyError, match="in replica 1 on device 1"):
        nn.DataParallel(Faulty(), device_ids=[0, 1])(torch.ones(4, 1))
