"""torch.sim and what torch asks of a device: streams, random numbers, autocast, pinned memory, torch.accelerator."""

import ast
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import simgpu

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.mark.parametrize("name", ["sim:2", "sim:130", "sim:256", "sim:99999"])
def test_a_number_that_no_gpu_has_is_refused_though_torch_keeps_a_byte_of_it(name):
    simgpu.enable(2)
    for call in (torch.sim.set_device, torch.sim.memory_allocated, torch.sim.Stream, torch.sim.get_device_name):
        with pytest.raises(torch.AcceleratorError, match=f"got {name}"):
            call(name)
    if name == "sim:130":  # torch itself takes sim:256 for sim:0, as it takes cuda:256 for cuda:0
        with pytest.raises(torch.AcceleratorError, match=f"got {name}"):
            torch.ones(1, device=name)


def test_devices():
    assert (torch.sim.device_count(), torch.sim.is_available(), torch.sim.current_device()) == (4, True, 0)
    properties = torch.sim.get_device_properties("sim:1")
    assert (properties.name, properties.total_memory) == (torch.sim.get_device_name(1), 2**24)
    assert properties.name.startswith("Simulated ")
    assert not torch.sim.can_device_access_peer(1, 1)
    with pytest.raises(ValueError, match="cpu"):
        torch.sim.synchronize("cpu")


def test_every_name_of_torch_cuda_is_there_or_says_what_is_instead():
    lacking = [name for name in torch.cuda.__all__ if not hasattr(torch.sim, name)]
    assert "graph" in lacking
    for name in lacking:
        with pytest.raises(AttributeError, match=rf"torch\.cuda\.{name}: "):
            getattr(torch.sim, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        torch.sim.nonsense  # noqa: B018
    assert not [name for name in torch.cuda.nvtx.__all__ if not hasattr(torch.sim.nvtx, name)]
    assert not {"autocast", "GradScaler", "custom_fwd", "custom_bwd"} - set(vars(torch.sim.amp))


@pytest.mark.parametrize(
    ("gpu", "capability", "tf32", "bf16"),
    [
        ("GTX 1080", (6, 1), False, False),
        ("P100-PCIe-16GB", (6, 0), False, False),
        ("T4", (7, 5), False, False),
        ("A100-SXM4-40GB", (8, 0), True, True),
        ("RTX 3090", (8, 6), True, True),
        ("H100-PCIe-80GB", (9, 0), True, True),
    ],
)
def test_what_the_hardware_can_do(gpu, capability, tf32, bf16):
    simgpu.enable(4, gpu=gpu)
    properties = torch.sim.get_device_properties(3)
    assert torch.sim.get_device_capability("sim:3") == (properties.major, properties.minor) == capability
    assert torch.sim.get_arch_list() == [f"sm_{capability[0]}{capability[1]}"]
    assert (torch.sim.is_tf32_supported(), torch.sim.is_bf16_supported(including_emulation=False)) == (tf32, bf16)
    assert torch.sim.is_bf16_supported()


def test_the_current_device_is_the_threads_own():
    x, seen = torch.ones(1, device="sim:3"), []
    thread = threading.Thread(target=lambda: seen.append(torch.sim.current_device()))
    with torch.sim.device(2):
        made = [
            torch.ones(1, device="sim"),
            torch.ones(1).to("sim"),
            torch.ones(1).sim(),
            x.to(device="sim"),
            x.sim(),
            nn.Linear(1, 1).to("sim").weight,
            torch.tensor([1], device="sim"),
        ]
        assert {str(t.device) for t in made} == {"sim:2"}
        thread.start()
        thread.join()
        with torch.sim.device_of(x), torch.sim.device(None), torch.sim.device(-1):
            assert torch.sim.current_device() == 3
    assert seen == [0]
    torch.sim.set_device(1)
    torch.sim.set_device(-1)
    assert str(torch.ones(1).to("sim").device) == "sim:1"
    torch.sim.set_device(0)
    assert str(x.to("sim").device) == "sim:0"


DRAWS = [
    lambda d: torch.randn(5, device=d),
    lambda d: torch.rand(3, 2, device=d),
    lambda d: torch.randperm(9, device=d),
    lambda d: torch.randint(0, 9, (4,), device=d),
    lambda d: torch.empty(4, device=d).exponential_(),
    lambda d: torch.bernoulli(torch.full((9,), 0.5, device=d)),
    lambda d: torch.randn_like(torch.ones(3, device=d)),
    lambda d: torch.rand_like(torch.ones(3, device=d)),
    lambda d: torch.multinomial(torch.ones(9, device=d), 3),
    lambda d: nn.functional.dropout(torch.ones(40, device=d), 0.3),
    lambda d: torch.zeros(3, device=d).normal_(),
    lambda d: nn.init.xavier_normal_(torch.empty(3, 3, device=d)),
]


def test_random_numbers_are_the_cpus():
    for draw in DRAWS:
        results = []
        for device in ("cpu", "sim:0", "sim:1", "sim:1"):
            if len(results) < 3:
                torch.manual_seed(7)
            results.append(draw(device).tolist())
        assert results[0] == results[1] == results[2]
        assert results[3] != results[2]  # the device's own generator went on
    torch.manual_seed(7)
    host = torch.rand(1)
    torch.manual_seed(7)
    torch.rand(100, device="sim:1")
    assert torch.rand(1) == host  # and the host's stood still


def test_generators():
    ours, theirs = torch.Generator("sim:1").manual_seed(5), torch.Generator().manual_seed(5)
    assert (str(ours.device), str(theirs.device)) == ("sim:1", "cpu")
    assert all(isinstance(generator, torch.Generator) for generator in (ours, torch.default_generator))
    for _ in range(2):
        assert torch.randn(4, device="sim:1", generator=ours).tolist() == torch.randn(4, generator=theirs).tolist()
    state = torch.sim.get_rng_state(1)
    a = torch.rand(2, device="sim:1")
    torch.sim.set_rng_state(state, 1)
    assert torch.equal(torch.rand(2, device="sim:1"), a)
    with torch.random.fork_rng(devices=range(4), device_type="sim"):
        torch.rand(2, device="sim:2")
    assert [str(generator.device) for generator in torch.sim.default_generators] == [f"sim:{i}" for i in range(4)]
    torch.sim.manual_seed_all(3)
    assert torch.equal(torch.rand(2, device="sim:2").cpu(), torch.rand(2, device="sim:3").cpu())
    assert torch.sim.initial_seed() == 3


def test_autocast_follows_cudas_lists():
    a, b = torch.ones(2, 2, device="sim:1"), torch.ones(2, 2, device="sim:1", requires_grad=True)
    with torch.autocast("sim", dtype=torch.bfloat16):
        low = a @ b
        types = [
            low.dtype,
            low.exp().dtype,
            low.sum().dtype,
            low.softmax(1).dtype,
            (low + a).dtype,
            low.relu().dtype,
            torch.addcmul(a, low, low).dtype,
            (a.double() @ b.double()).dtype,
        ]
        with torch.autocast("sim", enabled=False):
            assert (a @ b).dtype == torch.float32
    f, h, d = torch.float32, torch.bfloat16, torch.float64
    assert types == [h, f, f, f, f, h, f, d]
    low.sum().backward()
    assert b.grad.dtype == torch.float32


def test_streams_and_events_without_a_clock():
    first, last = torch.sim.Event(enable_timing=True), torch.Event(device="sim", enable_timing=True)
    stream = torch.Stream(device="sim:2")
    first.record()
    with stream, torch.sim.stream(None):
        assert torch.sim.current_device() == 2
        torch.ones(2, device="sim").record_stream(stream)
    stream.wait_stream(torch.sim.current_stream(2))
    last.record()
    torch.sim.synchronize()
    assert first.elapsed_time(last) >= 0
    assert (torch.sim.current_device(), isinstance(stream, torch.Stream)) == (0, True)
    with pytest.raises(ValueError, match="enable_timing=True"):
        torch.sim.Event().elapsed_time(last)


def test_the_accelerator_and_pinned_memory():
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    assert (torch.accelerator.device_count(), torch.accelerator.is_available()) == (4, True)
    with torch.accelerator.device_index(2):
        assert torch.accelerator.current_device_index() == 2
        assert str(torch.ones(1, device="sim").device) == "sim:2"
    torch.accelerator.synchronize()
    pinned = torch.arange(3).pin_memory()
    looked = pinned, pinned[1:], torch.arange(3), pinned.clone()
    assert [x.is_pinned() for x in looked] == [True, True, False, False]
    data = TensorDataset(torch.arange(10.0))
    for workers in (0, 1):
        batches = [batch for (batch,) in DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)]
        assert [b.is_pinned() for b in batches] == [True] * 3
        assert torch.cat(batches).tolist() == list(range(10))


FACTORIES = [
    lambda **o: torch.empty(3, **o),
    lambda **o: torch.zeros(3, **o),
    lambda **o: torch.ones(2, 2, **o),
    lambda **o: torch.rand(3, **o),
    lambda **o: torch.tensor([1.5], **o),
    lambda **o: torch.arange(3, **o),
    lambda **o: torch.zeros_like(torch.ones(2), **o),
    lambda **o: torch.full((2,), 7, **o),
]


@pytest.mark.parametrize("factory", FACTORIES, ids=range(len(FACTORIES)))
def test_factories_make_pinned_memory(factory):
    pinned, plain = factory(pin_memory=True), factory(pin_memory=False)
    assert [x.is_pinned() for x in (pinned, plain, factory())] == [True, False, False]
    assert (pinned.device.type, pinned.shape, pinned.dtype) == ("cpu", plain.shape, plain.dtype)
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        factory(pin_memory=True, device="sim:1")


def test_factories_stay_known_to_torch():
    script = torch.jit.CompilationUnit("def f(n: int):\n    return torch.zeros(n) + torch.ones(n)\n")
    assert script.f(2).tolist() == [1, 1]
    assert torch.compile(lambda x: x + torch.ones(2), backend="eager", fullgraph=True)(torch.ones(2)).tolist() == [2, 2]
    with torch.device("sim:2"):
        assert str(torch.tensor([1]).device) == str(torch.zeros(1).device) == "sim:2"


def test_enable_again():
    x = torch.ones(3, device="sim:1")
    simgpu.enable(4, memory=2**20, clock=False)  # the same number
    assert torch.sim.get_device_properties(1).total_memory == 2**20
    assert torch.sim.memory_stats(1)["allocation.all.allocated"] == 1
    assert (x + 1).tolist() == [2, 2, 2]
    simgpu.enable(2, clock=False)  # fewer, with nothing there
    assert torch.sim.device_count() == 2
    for wrong in (lambda: simgpu.enable(1, clock=False), simgpu.disable):
        with pytest.raises(RuntimeError, match="delete them first"):
            wrong()
        assert torch.sim.device_count() == 2
    for wrong in (
        {"gpus": 0},
        {"gpus": 129},
        {"gpus": 2**70},
        {"gpus": 1.5},
        {"gpu": "no such"},
        {"machine": "no such"},
        {"memory": -1},
        {"machine": "DGX-1-V100", "gpus": 3},
        {"link": "no such"},
        {"mode": "fast"},
    ):
        with pytest.raises(ValueError, match=r"GPU|machine|link|number|fast"):
            simgpu.enable(**wrong)
        assert torch.sim.device_count() == 2
    simgpu.enable(machine="DGX-1-V100")
    assert torch.sim.device_count() == 8
    assert "V100" in torch.sim.get_device_name(7)
    del x


def test_without_gpus_every_question_is_answered_in_a_sentence():
    simgpu.disable()
    for ask in (
        torch.sim.synchronize,
        torch.sim.memory_allocated,
        torch.sim.mem_get_info,
        torch.sim.Stream,
        lambda: torch.ones(1, device="sim"),
        lambda: torch.ones(1, device="sim:0"),
        lambda: torch.ones(1).sim(),
        lambda: torch.Generator("sim"),
    ):
        with pytest.raises(RuntimeError, match="No simulated GPUs are available"):
            ask()
    assert (torch.sim.is_available(), simgpu.is_enabled(), torch.sim.default_generators) == (False, False, ())
    assert torch.accelerator.is_available() == torch.cuda.is_available()


def test_a_current_device_that_was_taken_away_is_out_of_range():
    torch.sim.set_device(3)
    uses = torch.sim.memory_allocated, lambda: torch.ones(1, device="sim"), lambda: torch.ones(1).to("sim")
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(torch.sim.set_device, 2).result()
        simgpu.enable(2, clock=False)
        for use in uses:
            with pytest.raises(torch.AcceleratorError, match="got sim:2"):
                elsewhere.submit(use).result()
    assert torch.sim.current_device() == 0  # the caller's own was moved


def test_storages_made_by_hand():
    storage = torch.UntypedStorage(600, device="sim:3")  # no other test here leaves anything on that one
    assert (str(storage.device), storage.nbytes(), torch.sim.memory_allocated(3)) == ("sim:3", 600, 1024)
    assert torch.UntypedStorage(4).device.type == "cpu"
    x = torch.ones(2, device="sim:1").untyped_storage()
    assert str(torch.empty(0, device="sim:1").set_(x, 0, (2,)).untyped_storage().clone().device) == "sim:1"
    with pytest.raises(RuntimeError, match="the devices must match"):
        torch.ones(2).set_(torch.ones(2, device="sim:1"))


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("interrupted", ["interrupted"]),
        ("first_compile", ["[2.0, 2.0]"]),
        ("bare_imports", ["rooms: [], heavy: []"]),
    ],
)
def test_in_a_process_of_its_own(program, says):
    path = Path(__file__).with_name("programs") / f"{program}.py"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (
        program == "interrupted" or not done.stderr
    )  # an interrupt may meet a function whose errors Python only prints
    lines = done.stdout.splitlines()[: len(says)]
    assert all(line.startswith(words) for line, words in zip(lines, says, strict=True)), lines


def test_type_checkers_see_the_names_that_there_are():
    block = next(node for node in ast.parse(Path(simgpu.__file__).read_text()).body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == {name: f"simgpu.{home}" for name, home in simgpu._HOME.items()}
