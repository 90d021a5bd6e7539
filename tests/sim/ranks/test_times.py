"""The simulated time and the traffic of collectives: bytes by formula, communication beside computation, repeatable."""

import itertools
import json
import os
import threading
from functools import partial

import pytest
import torch
import torch.distributed as dist
from cases import sent_in, took
from torch.nn.parallel import DistributedDataParallel

import simgpu
from d2lmini.collectives import schedules
from simgpu.hardware import machines
from simgpu.hardware.machines import build
from simgpu.hardware.op_costs import LAUNCH_S, copy_seconds
from simgpu.ranks import communication_costs

GPU, LINK = "V100-SXM2-16GB", "NVLink2"
MIB = 2**20
NAMES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter"]


def traced(run, ranks=4):
    """Return the trace of `run` on ranks whose GPUs have just been started."""
    simgpu.enable(ranks, gpu=GPU, link=LINK)
    with simgpu.trace() as trace:
        simgpu.spawn(run)
    return trace


def out_bytes(trace):
    """Return the bytes that each GPU sent over its NVLinks."""
    return [count for wire, count in trace.link_bytes().items() if "NVLink" in wire and wire.endswith("out")]


def tensor(nbytes):
    return torch.zeros(nbytes // 4, device="sim")


@pytest.mark.parametrize("n", [2, 4, 8])
def test_bytes_are_those_of_the_formula(n):
    def run(rank):
        parts = [tensor(MIB) for _ in range(n)] if rank == 1 else None
        dist.all_reduce(tensor(MIB))
        dist.all_gather_into_tensor(tensor(MIB), tensor(MIB // n))
        dist.reduce_scatter_tensor(tensor(MIB // n), tensor(MIB))
        dist.broadcast(tensor(MIB), 1)
        dist.reduce(tensor(MIB), 1)
        dist.all_to_all_single(tensor(MIB), tensor(MIB))
        dist.gather(tensor(MIB), parts, dst=1)
        dist.scatter(tensor(MIB), parts, src=1)

    trace = traced(run, n)
    sent = sent_in(trace)
    assert sent == {name: (1 + (name == "all_reduce")) * (n - 1) * MIB for name in NAMES}
    assert sum(out_bytes(trace)) == sent.total()


def test_bytes_that_no_number_of_ranks_divides():
    trace = traced(lambda rank: dist.all_reduce(torch.zeros(7, dtype=torch.uint8, device="sim")), 3)
    assert sum(out_bytes(trace)) == 2 * 2 * 7


def test_a_message_takes_the_time_of_its_route():
    def run(rank):
        return took(dist.recv if rank else dist.send, tensor(MIB), 1 - rank)

    simgpu.enable(2, gpu=GPU, link=LINK)
    times = simgpu.spawn(run)
    wanted = LAUNCH_S + copy_seconds(MIB, build(2, GPU, LINK).route(0, 1)[0].link)
    assert times == pytest.approx([wanted] * 2)


def test_a_batch_of_messages_goes_both_ways_at_once():
    """As in NCCL, whose messages between two ranks go one after the other unless they are a batch."""

    def run(rank, batched):
        sent, got, other = tensor(16 * MIB), tensor(16 * MIB), 1 - rank
        calls, launched = [(dist.isend, sent, other), (dist.irecv, got, other)], []

        def exchange():
            begin = simgpu.now()
            works = (
                dist.batch_isend_irecv([dist.P2POp(*call) for call in calls])
                if batched
                else [call(data, other) for call, data, other in calls]
            )
            launched.append(simgpu.now() - begin)
            for work in works:
                work.wait()

        done = took(exchange)
        return launched[0], done

    simgpu.enable(2, gpu=GPU, link=LINK)
    once = copy_seconds(16 * MIB, build(2, GPU, LINK).route(0, 1)[0].link)
    for batched, launches, transfers in ((True, 1, 1), (False, 2, 2)):
        for launched, done in simgpu.spawn(run, (batched,)):
            assert launched == pytest.approx(launches * LAUNCH_S)
            assert done == pytest.approx(transfers * once, abs=3 * LAUNCH_S)


@pytest.mark.parametrize(
    ("machine", "last"),
    [
        (build(4, GPU, LINK), 2),
        *((machines.cluster(machines.MACHINES["DGX-A100"], 2), rank) for rank in (1, 9)),
    ],
    ids=["a node", "first of two", "second of two"],
)
def test_a_collective_begins_when_the_last_rank_is_there_and_ends_on_all_at_once(machine, last):
    def run(rank):
        a = torch.zeros(2048, 2048, device="sim")
        for _ in range(3 * (rank == last)):
            a @ a
        torch.sim.synchronize()
        ready = simgpu.now()
        dist.all_reduce(tensor(MIB))
        torch.sim.synchronize()
        return ready, simgpu.now()

    simgpu.enable(machine=machine, shapes_only=True)
    times = simgpu.spawn(run)
    assert len({end for _, end in times}) == 1
    assert max(ready for ready, _ in times) == times[last][0] < times[0][1]


def test_ranks_begin_together_when_those_of_an_earlier_call_have_ended():
    def run(rank):
        begin = simgpu.now()
        simgpu.clock().advance(rank, "reading a batch")
        return begin, simgpu.now()

    simgpu.enable(4, gpu=GPU, link=LINK)
    for call in range(3):
        assert simgpu.spawn(run) == [(3 * call, 3 * call + rank) for rank in range(4)]


def test_a_wait_holds_the_stream_up_and_not_the_host():
    def run(rank):
        data, other = tensor(64 * MIB), torch.zeros(512, 512, device="sim")
        torch.sim.synchronize()
        begin = simgpu.now()
        work = dist.all_reduce(data, async_op=True)
        other @ other  # beside the communication
        work.wait()
        host = simgpu.now() - begin
        torch.sim.current_stream().synchronize()
        return host, simgpu.now() - begin

    simgpu.enable(4, gpu=GPU, link=LINK, shapes_only=True)
    for host, all_done in simgpu.spawn(run):
        assert host < 0.1 * all_done


def overlap(trace, device):
    """Return the seconds during which a device both computed and communicated."""
    kinds = [
        [(s.start, s.end) for s in trace.spans if s.place == f"gpu{device}" and s.kind == kind]
        for kind in ("operation", "communication")
    ]
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in kinds[0] for b in kinds[1])


def test_the_buckets_of_ddp_travel_while_backward_computes():
    def run(rank, mib):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(1024, 1024) for _ in range(4)]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to("sim"), bucket_cap_mb=mib)
        x = torch.zeros(256, 1024, device="sim")
        for _ in range(2):
            with simgpu.trace() as trace:
                seconds = took(lambda: model(x).sum().backward())
        return seconds, overlap(trace, rank)

    results = {}
    for mib in (4, 100):
        simgpu.enable(2, gpu=GPU, link=LINK, shapes_only=True)
        results[mib] = simgpu.spawn(run, (mib,))[1]
    assert results[4][1] > results[100][1]
    assert results[4][0] < results[100][0]


def test_the_gradients_are_there_before_the_step():
    """What follows backward on the device follows the last bucket too."""

    def run(rank):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2048, 2048).to("sim"))
        torch.sim.synchronize()
        with simgpu.trace() as trace:
            model(torch.zeros(1, 2048, device="sim")).sum().backward()
            model.module.weight.grad.mul_(2)
            torch.sim.synchronize()
        return [(s.kind, s.name, s.start, s.end) for s in trace.spans if s.place == "gpu1"]

    simgpu.enable(2, gpu=GPU, link=LINK, shapes_only=True)
    spans = simgpu.spawn(run)[1]
    communication = max(end for kind, _, _, end in spans if kind == "communication")
    assert next(start for _, name, start, _ in spans if name == "mul_") >= communication


SCHEDULES = [
    schedules.allreduce_naive,
    schedules.allreduce_tree,
    schedules.allreduce_ring,
    schedules.allreduce_halving_doubling,
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.__name__)
def test_our_schedules_carry_the_buckets_of_ddp(schedule):
    def run(rank):
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(7, 5).to("sim"))
        model(torch.full((3, 7), rank + 1.0, device="sim")).sum().backward()
        extreme = torch.tensor([rank, 2**16 - 1 - rank]).to(torch.uint16).to("sim")
        dist.all_reduce(extreme, dist.ReduceOp.MAX)
        return model.module.weight.grad.cpu(), extreme.cpu().tolist()

    simgpu.enable(3, gpu=GPU, link=LINK)
    with simgpu.trace() as trace:
        results = simgpu.spawn(run, allreduce=schedule)
    for gradient, extreme in results:
        torch.testing.assert_close(gradient, torch.full((5, 7), 3 * 2.0))  # mean of 3·1, 3·2 and 3·3
        assert extreme == [2, 2**16 - 1]
    wanted = sum(step.stop - step.start for sends in schedule(3).steps for step in sends) * 40 * 4 / schedule(3).chunks
    sums = [s for s in trace.spans if s.kind == "communication" and s.name.startswith("all_reduce")]
    bucket = [s for s in sums if s.name.split(",")[0] == sums[0].name.split(",")[0]]
    assert bucket[-1].name.endswith(f", step {len(schedule(3).steps)} of {len(schedule(3).steps)}")
    assert sum(s.nbytes for s in bucket) == pytest.approx(wanted, abs=16)


def test_a_trace_names_collective_group_bytes_and_algorithm(tmp_path):
    def run(rank):
        pair = dist.new_group([1, 3])
        if rank in (1, 3):
            dist.all_reduce(tensor(MIB), group=pair)
        else:
            tensor(4)

    trace = traced(run)
    spans = [s for s in trace.spans if s.kind == "communication"]
    assert [(s.place, s.nbytes) for s in spans] == [("gpu1", MIB), ("gpu3", MIB)]
    assert spans[-1].name == "all_reduce #1 of group [1, 3], 1 MiB, ring Simple"
    assert {s.row for s in trace.spans if s.place == "host"} == {1, 2, 3, 4}
    trace.save(tmp_path / "trace.json")
    names = {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert spans[0].name in names


def test_ranks_of_a_cluster_have_the_gpus_of_their_own_node():
    def run(rank):
        local = int(os.environ["LOCAL_RANK"])
        torch.sim.set_device(local)
        data = torch.full((MIB // 4,), float(rank), device="sim")
        assert torch.sim.device_count() == 8
        assert torch.sim.memory_allocated(local) == MIB
        dist.all_reduce(data)
        pairs = [dist.new_group([0, 1]), dist.new_group([0, 8])]
        for number, pair in enumerate(pairs):
            if rank in dist.get_process_group_ranks(pair):
                pairs[number] = took(dist.all_reduce, data, group=pair)
        return str(data.device), data[0].item(), pairs

    simgpu.enable(machine=machines.cluster(machines.MACHINES["8xH200"], 20))
    assert torch.sim.device_count() == 8
    with simgpu.trace() as trace:
        results = simgpu.spawn(run, nprocs=18)
    assert [place for place, *_ in results] == [f"sim:{r % 8}" for r in range(18)]
    assert results[17][1] == sum(range(18))
    inside, across = results[0][2]
    assert 0 < inside < across
    assert {s.place for s in trace.spans if s.kind == "operation"} == {f"gpu{r}" for r in range(18)}
    wires = {wire for wire in trace.link_bytes() if "adapter" in wire}
    assert {wire.split()[0] for wire in wires} == {"node0", "node1", "node2"}
    assert torch.sim.device_count() == 8


def test_an_object_has_as_many_bytes_wherever_its_tensors_lie_in_memory():
    made = [torch.arange(4) for _ in range(200)]
    beside = threading.Thread(target=lambda: made.extend([torch.arange(4) for _ in range(200)]))  # elsewhere in memory
    beside.start()
    beside.join()
    tensors = [made[0], *{len(str(t.untyped_storage()._cdata)): t for t in made}.values()]  # short and long addresses

    def run(rank):
        for tensor in tensors:
            box = [{"a": tensor, "b": tensor[1:]} if rank == 0 else None]
            dist.broadcast_object_list(box, 0)
            assert (box[0]["a"].tolist(), box[0]["b"].tolist()) == ([0, 1, 2, 3], [1, 2, 3])

    sent = [span.nbytes for span in traced(run).spans if span.name.startswith("broadcast") and span.nbytes > 8]
    assert len(set(sent)) == 1 < len(sent)


def test_tensors_of_the_host_stay_in_its_memory():
    """They wait for no kernel, take no link between GPUs, and the host waits for them."""

    def run(rank):
        busy = torch.ones(2**24, device="sim")
        dist.barrier()
        for _ in range(10):
            busy.mul_(2)
        data, times = torch.ones(10**6), [simgpu.now()]
        for call in (dist.all_reduce, partial(dist.send, dst=1) if rank == 0 else partial(dist.recv, src=0)):
            call(data)
            times.append(simgpu.now())
        return [end - begin for begin, end in itertools.pairwise(times)]

    simgpu.enable(2, gpu="V100-SXM2-16GB")
    with simgpu.trace() as trace:
        found = simgpu.spawn(run)
    once = communication_costs.HOST_S + 4e6 / communication_costs.HOST_BYTES_PER_S
    assert found == [pytest.approx([once, once])] * 2
    moved = [span for span in trace.spans if span.kind in ("communication", "copy") and "barrier" not in span.name]
    assert not moved


def test_tensors_of_the_host_cross_the_network_between_nodes():
    def run(rank):
        if rank in (0, 8):
            (dist.send if rank == 0 else dist.recv)(torch.ones(2**22), 8 - rank)

    machine = machines.cluster(machines.MACHINES["DGX-1-V100"], 2)
    simgpu.enable(machine=machine)
    with simgpu.trace() as trace:
        simgpu.spawn(run)
    adapters = [span for span in trace.spans if "adapter" in span.place]
    assert {span.nbytes for span in adapters} == {2**24}
    assert trace.seconds == pytest.approx(copy_seconds(2**24, machine.route(0, 8)[-1].link))


def test_ddp_copies_a_gradient_out_of_its_bucket_when_the_sum_has_come():
    """As torch's C++ code waits for each bucket's Future before it copies that bucket."""

    def step(rank):
        layers = [torch.nn.Linear(1024, 1024, bias=False) for _ in range(3)]
        model = DistributedDataParallel(torch.nn.Sequential(*layers).to("sim"), bucket_cap_mb=4)
        for _ in range(2):
            torch.sim.synchronize()
            begin = simgpu.now()
            model(torch.ones(1, 1024, device="sim")).sum().backward()
        return begin

    simgpu.enable(2, gpu="V100-PCIe-16GB", link="PCIe3-x16")
    with simgpu.trace() as trace:
        begin = simgpu.spawn(step)[0]
    mine = [span for span in trace.spans if span.place == "gpu0" and span.start_s > begin]
    ends = [span.end for span in mine if "all_reduce" in span.name]
    copies = [span.start for span in mine if span.name.startswith("copy_")]
    assert len(ends) == len(copies) == 3
    assert all(map(int.__ge__, copies, ends))
