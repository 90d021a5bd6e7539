"""Programs written for CUDA run unmodified on simulated GPUs, and torch is afterwards as it was."""

import copy
import gc
import io
import warnings
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn, ones, tensor
from torch.cuda import CUDAGraph as GraphBefore
from torch.cuda import Event as EventBefore
from torch.cuda import Stream as StreamBefore
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.attention import flex_attention as flex

import simgpu

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there CUDA's own GPUs have the name")


@pytest.fixture
def cuda():
    simgpu.enable(2, gpu="A100-SXM4-80GB")
    with simgpu.as_cuda():
        yield
    simgpu.disable()


def test_nothing_stays_replaced():
    simgpu.enable(2)
    owners = (torch, torch._C, torch.cuda, torch.cuda.memory, torch.Tensor, torch.UntypedStorage, torch.sim.Stream)
    before = [dict(vars(owner)) for owner in owners]
    with simgpu.as_cuda(), simgpu.as_cuda():
        x = torch.ones(2, device="cuda:1")
    assert [dict(vars(owner)) for owner in owners] == before
    assert (str(x.device), x.is_sim, x.is_cuda, torch.cuda.is_available()) == ("sim:1", True, False, False)
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
        torch.ones(2, device="cuda")
    del x
    simgpu.disable()
    with pytest.raises(RuntimeError, match="enable"):
        simgpu.as_cuda()


def test_a_whole_program_is_inside_from_its_first_lines():
    simgpu.enable(2)
    before = torch.Tensor.to
    simgpu.as_cuda().__enter__()
    gc.collect()
    try:
        assert torch.ones(2, device="cuda:1").is_cuda
    finally:
        simgpu.as_cuda().__exit__(None, None, None)
    assert torch.Tensor.to is before


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, device="cuda:1"),
        lambda: torch.tensor([1.0, 1.0, 1.0], device=torch.device("cuda", 1)),
        lambda: ones(3, device="cuda:1"),
        lambda: tensor([1.0, 1.0, 1.0], device=torch.device("cuda", 1)),
        lambda: torch.ones(3).cuda(1),
        lambda: torch.ones(3).to("cuda:1"),
        lambda: torch.ones(3).to(1),
        lambda: torch.ones(3).to(device=torch.device("cuda:1"), non_blocking=True),
        lambda: torch.ones(3).pin_memory().cuda(device=1, non_blocking=True),
        lambda: torch.zeros(3, device="cuda").new_ones(3, device="cuda:1"),
        lambda: torch.ones_like(torch.zeros(3), device="cuda:1"),
        lambda: torch.normal(1.0, 0.0, (3,), device="cuda:1"),
        lambda: nn.Linear(1, 3, device="cuda:1").bias.data.fill_(1),
        lambda: nn.LazyLinear(3).cuda(1)(torch.ones(1, 1, device="cuda:1")).detach()[0].fill_(1),
        lambda: torch.ones(3, device="cuda").to(torch.ones(1, device="cuda:1")),
    ],
)
def test_whichever_way_a_tensor_gets_there(cuda, make):
    x = make()
    assert x.device == torch.device("cuda:1")
    assert (x.device.type, x.is_cuda, x.get_device(), x.tolist()) == ("cuda", True, 1, [1, 1, 1])
    assert torch.cuda.memory_allocated("cuda:1") > 0
    assert "device='cuda:1'" in repr(x)


def test_the_current_and_the_default_device(cuda):
    with torch.cuda.device(1):
        assert torch.zeros(1).cuda().device == torch.tensor(1, device="cuda").device == torch.device("cuda:1")
    with torch.device("cuda:1"):
        assert torch.zeros(1).device == torch.get_default_device() == torch.device("cuda:1")
    torch.cuda.set_device("cuda:1")
    assert torch.cuda.current_device() == 1 == torch.zeros(1, device="cuda").get_device()
    torch.cuda.set_device(0)
    assert torch.accelerator.current_accelerator() == torch.device("cuda")


def test_a_training_step_with_autocast_scaler_and_checkpointing_agrees_with_the_simulated_name(cuda):
    def losses(device):
        torch.manual_seed(0)
        x = torch.ones(4, 8, device=device)
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
        optimizer, scaler = torch.optim.AdamW(net.parameters()), torch.amp.GradScaler(device.type)
        for _ in range(3):
            with torch.autocast(device.type, torch.float16):
                assert net(x).dtype == torch.float16
                hidden = torch.utils.checkpoint.checkpoint(net[:2], x, use_reentrant=False)
                loss = net[2](hidden).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            yield loss.item()

    assert list(losses(torch.device("cuda"))) == list(losses(torch.device("sim")))


def test_streams_events_generators_and_seeds(cuda):
    stream, first, last = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(True)
    x = torch.ones(512, 512, device="cuda")
    first.record()
    with torch.cuda.stream(stream):
        stream.wait_stream(torch.cuda.default_stream())
        y = x @ x
        last.record()
    torch.cuda.synchronize("cuda:0")
    assert first.elapsed_time(last) > 0
    assert stream.device == torch.device("cuda:0") == y.device
    generator = torch.Generator("cuda:1").manual_seed(7)
    drawn = torch.rand(3, device="cuda:1", generator=generator)
    torch.cuda.manual_seed_all(7)
    assert generator.device == torch.device("cuda:1")
    assert torch.equal(drawn, torch.rand(3, device="cuda:1"))


compiles = pytest.mark.skipif(
    not hasattr(torch._subclasses.FakeTensor, "_normalize_fake_device"), reason="torch.compile is refused in 2.11"
)


@compiles
def test_a_compiled_program_is_given_a_view(cuda):
    x = torch.ones(6, device="cuda", requires_grad=True)
    torch.compile(torch.square, backend="aot_eager", fullgraph=True)((2 * x).view(2, 3)).sum().backward()
    assert x.grad.tolist() == [8] * 6


class Asking(nn.Module):
    """Doubles on CUDA; asks in three ways where it is."""

    def forward(self, x):
        return x * (1 + x.is_cuda) + (x.device.type == "cuda") + torch.zeros(3, device=x.device)


@pytest.mark.parametrize(
    "trace",
    [
        lambda net, x: net,
        lambda net, x: torch.export.export(net, (x,)).module(),
        pytest.param(lambda net, x: torch.compile(net, backend="aot_eager"), marks=compiles),
    ],
    ids=["eager", "exported", "compiled"],
)
def test_a_traced_program_sees_cuda_as_an_eager_one_does(cuda, trace):
    x = torch.ones(3, device="cuda", requires_grad=True)
    assert trace(Asking(), x)(x).tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    ("ask", "instead"),
    [
        (lambda: torch.cuda.CUDAGraph(), "one_launch"),
        (lambda: torch.cuda.utilization(), "trace"),
        (lambda: torch.cuda.memory._record_memory_history(), "memory_summary"),
    ],
)
def test_what_simulated_gpus_lack_says_what_is_instead(cuda, ask, instead):
    with pytest.raises(NotImplementedError, match=instead):
        ask()
    torch.cuda.nvtx.range_push("step")
    assert (torch.cuda.is_current_stream_capturing(), torch.cuda.get_device_capability()) == (False, (8, 0))


@pytest.mark.parametrize(("where", "index"), [(None, 1), ("cuda:0", 0), ({"cuda:1": "cuda:0"}, 0), ("cpu", None)])
def test_files_name_cuda(cuda, tmp_path, where, index):
    torch.save({"w": torch.ones(2, device="cuda:1")}, tmp_path / "w.pt")
    loaded = torch.load(tmp_path / "w.pt", map_location=where)["w"]
    assert loaded.device == (torch.device("cpu") if index is None else torch.device("cuda", index))


def test_ddp_and_a_mesh_on_ranks(cuda):
    def program(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        torch.manual_seed(0)
        net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1).cuda(), device_ids=[rank])
        net(torch.full((2, 3), float(rank), device="cuda")).sum().backward()
        mesh = dist.device_mesh.init_device_mesh("cuda", (2,))
        shards = dist.tensor.distribute_tensor(torch.arange(4.0), mesh, [dist.tensor.Shard(0)])
        assert shards.device == shards.to_local().device == torch.device("cuda", rank)
        return net.module.weight.grad.tolist(), shards.full_tensor().sum().item()

    assert simgpu.spawn(program) == [([[1.0, 1.0, 1.0]], 6.0)] * 2


def test_a_profiler_of_cuda_shows_the_gpus_and_says_nothing_else(cuda, capfd):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
    gpus = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert [(event.device_index, event.use_device) for event in gpus if event.name == "mm"] == [(0, "cuda")]
    assert "Exception" not in capfd.readouterr().err


def test_what_goes_wrong_in_a_collective_is_told(cuda):
    """torch adds NCCL's version to it."""
    assert torch.cuda.nccl.version() >= (2, 10)
    with pytest.raises(simgpu.RankError, match="Duplicate GPU detected: rank 1 and rank 0 both on cuda:0"):
        simgpu.spawn(lambda rank: dist.all_reduce(torch.ones(1, device="cuda:0")))


@pytest.mark.parametrize("way", ["FSDP with an id", "FSDP", "fully_shard"])
def test_fsdp_moves_a_model_with_buffers_as_it_is_mostly_written(cuda, way):
    def outputs(device, wrap):
        torch.manual_seed(0)
        net = wrap(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
        y = net(torch.arange(6.0, device=device).reshape(2, 3))
        y.sum().backward()
        return y.flatten().tolist()

    def program(rank):
        torch.cuda.set_device(rank)
        first = partial(FullyShardedDataParallel, use_orig_params=True)
        ways = {
            "FSDP with an id": partial(first, device_id=torch.cuda.current_device()),
            "FSDP": lambda net: first(net.cuda()),
            "fully_shard": lambda net: fully_shard(net.cuda()),
        }
        return outputs("cuda", ways[way])

    for found in simgpu.spawn(program):
        assert found == pytest.approx(outputs("cpu", nn.Identity()), abs=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    ("read", "kind", "word"),
    [
        (torch.from_dlpack, BufferError, "DLPack"),
        (lambda x: x.__cuda_array_interface__, AttributeError, "simulated"),
        (lambda x: torch.jit.save(torch.jit.trace(nn.PReLU().cuda(), x), io.BytesIO()), NotImplementedError, "jit"),
    ],
)
def test_no_other_library_gets_the_hosts_memory_for_cudas(cuda, read, kind, word):
    with pytest.raises(kind, match=word):
        read(torch.ones(3).cuda())


def test_what_programs_ask_of_an_error_a_type_and_autocast_is_cudas(cuda):
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"^CUDA out of memory\."):
        torch.empty(10**12, device="cuda")
    with pytest.raises(torch.AcceleratorError, match=r"^CUDA error: invalid device ordinal\n.*got cuda:7"):
        torch.ones(1, device="cuda:7")
    x = torch.ones(2).type("torch.cuda.HalfTensor")
    assert (x.type(), x.dtype, x.cpu().type()) == ("torch.cuda.HalfTensor", torch.float16, "torch.HalfTensor")
    assert x.type(torch.long).type(x.type()).type() == x.type()
    with torch.autocast("cuda", torch.bfloat16):
        assert torch.get_autocast_gpu_dtype() == torch.bfloat16
        torch.set_autocast_gpu_dtype(torch.float16)
        assert torch.get_autocast_dtype("cuda") == torch.float16


@compiles
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_trained_as_it_is_uncompiled(cuda):
    x = torch.linspace(-1, 1, 512).sin().view(1, 2, 32, 8)
    blocks = [flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 32, 32, device=d) for d in ("cpu", "cuda")]
    theirs = flex.flex_attention(x, x, x, block_mask=blocks[0])
    ours, plain = x.cuda().requires_grad_(), x.clone().requires_grad_()
    y = flex.flex_attention(ours, ours, ours, block_mask=blocks[1])
    assert torch.equal(y.detach().cpu(), theirs)
    y.square().sum().backward()
    nn.functional.scaled_dot_product_attention(plain, plain, plain, is_causal=True).square().sum().backward()
    torch.testing.assert_close(ours.grad.cpu(), plain.grad)


def test_classes_imported_before_make_and_recognise_ours(cuda):
    stream, event = StreamBefore(), EventBefore(enable_timing=True)
    assert isinstance(torch.cuda.Stream(), StreamBefore)
    assert isinstance(torch.cuda.current_stream(), StreamBefore)
    assert all(isinstance(one, kind) for one in (stream, torch.cuda.Stream()) for kind in (torch.Stream, type(stream)))
    with torch.cuda.stream(stream):
        event.record()
    assert isinstance(event, torch.cuda.Event)
    assert isinstance(torch.cuda.Event(), EventBefore)
    with pytest.raises(NotImplementedError, match="one_launch"):
        GraphBefore()


def test_types_of_older_programs(cuda):
    kind = torch.cuda.FloatTensor
    x = kind([1, 2])
    assert (x.tolist(), x.is_cuda, isinstance(x, kind), isinstance(x.cpu(), kind)) == ([1, 2], True, True, False)
    assert kind(2, 3).shape == (2, 3)
    assert x.type(torch.cuda.HalfTensor).type() == "torch.cuda.HalfTensor"
    torch.set_default_tensor_type(torch.cuda.DoubleTensor)
    try:
        assert torch.ones(1).type() == "torch.cuda.DoubleTensor"
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


def test_what_programs_ask_about_the_gpu(cuda):
    found = torch.cuda.get_device_properties(0)
    assert found.max_threads_per_multi_processor in (1024, 1536, 2048)
    assert found.shared_memory_per_block_optin >= found.shared_memory_per_block
    assert found.uuid != torch.cuda.get_device_properties(1).uuid
    assert torch.version.cuda
    assert torch.cuda.get_allocator_backend() == "native"
    torch.cuda.cudart().cudaProfilerStart()
    torch.cuda.profiler.stop()


def test_nothing_that_prints_says_sim(cuda, tmp_path):
    x = torch.ones(2, device="cuda")
    shown = [x, nn.Parameter(x), type(x), x.device, x.type(), x.untyped_storage(), torch.cuda.current_stream()]
    shown += [torch.cuda.Event(), torch.cuda.default_generators[0], torch.device(1), torch.cuda.FloatTensor]
    shown += [torch.cuda.memory_summary().replace("Simulated", ""), type(torch.cuda.get_device_properties(0))]
    torch.save(x, tmp_path / "x")
    for action in (
        *(lambda: x + torch.ones(2), lambda: x.to("cuda:9"), lambda: x.numpy(), lambda: x @ x[:1]),
        *(lambda layer=layer: layer(2, 2).cuda()(torch.ones(1, 1, 2)) for layer in (nn.LSTM, nn.GRU, nn.RNN)),
        lambda: torch.load(tmp_path / "x", map_location="cuda:9"),
    ):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            action()
        shown.append(caught.value)
    assert [text for text in map(repr, shown) if "sim" in text.lower()] == []

    def on_ranks(rank):
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        work = dist.all_reduce(torch.ones(1, device="cuda"), async_op=True)
        shown = [dist.group.WORLD, work, work.get_future(), dist.get_backend(), dist.get_backend_config()]
        shown += [dist.ProcessGroupNCCL, dist.group.WORLD.bound_device_id]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dist.barrier()
        return list(map(repr, shown))

    for texts in simgpu.spawn(on_ranks):
        assert [text for text in texts if "sim" in text.lower()] == []
        assert "'cuda:nccl'" in texts


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.filterwarnings("error")
def test_a_recurrent_layer_is_moved_and_trains_whether_or_not_torch_has_cudnn(cuda, layer):
    on_cpu = layer(3, 4)
    on_gpu = copy.deepcopy(on_cpu).cuda()
    x = torch.randn(5, 2, 3)
    for net, inputs in ((on_cpu, x), (on_gpu, x.cuda())):
        net(inputs)[0].sum().backward()
    torch.testing.assert_close(on_gpu.weight_hh_l0.grad.cpu(), on_cpu.weight_hh_l0.grad)
    assert torch.backends.cudnn.version() > 8000
