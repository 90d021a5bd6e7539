"""Devices: the choice, its fallbacks, and errors that say what was wanted."""

import contextlib
import re
from types import SimpleNamespace

import pytest
import torch

import simgpu
from d2lmini import devices


@pytest.fixture(autouse=True, scope="module")
def known():
    """Torch knows the device type, whatever ran before; the tests put stand-ins in place of everything else."""
    simgpu.enable(1)


class Fake:
    """Stands in for torch.accelerator, or for simgpu and torch.sim; `waited`: the devices that were waited for."""

    def __init__(self, count, kind):
        self.count, self.kind, self.waited = count, kind, []

    def enable(self, count=2):
        self.count = count

    def is_enabled(self):
        return self.count > 0

    is_available = is_enabled

    def device_count(self):
        return self.count

    def current_accelerator(self):
        return torch.device(self.kind)

    def to_sim(self, device):
        return device

    def synchronize(self, device):
        self.waited.append(device)


@pytest.fixture
def machine(monkeypatch):
    """Return a function that makes the machine have so many accelerators, and no simulated GPUs yet."""
    monkeypatch.delenv("D2LMINI_DEVICES", raising=False)

    def pretend(count, kind="cuda"):
        fake = Fake(count, kind)
        fake.sim = Fake(0, "sim")
        monkeypatch.setattr(torch, "accelerator", fake)
        monkeypatch.setattr(devices, "simgpu", fake.sim)
        monkeypatch.setattr(torch, "sim", fake.sim, raising=False)
        return fake

    return pretend


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_accelerators_are_found_in_order(machine, kind):
    machine(2, kind)
    both = [torch.device(kind, 0), torch.device(kind, 1)]
    assert devices.try_all_gpus() == devices.devices(2) == both
    assert devices.devices(1) == both[:1]
    assert devices.try_gpu(1) == devices.gpu(1) == both[1]
    assert devices.try_gpu(2) == torch.device("cpu")
    machine(0)
    assert devices.gpu(2) == torch.device("cuda", 2)  # a name, there or not


@pytest.mark.parametrize(("real", "n", "made"), [(0, 1, 2), (0, 2, 2), (0, 5, 5), (1, 2, 2), (2, 3, 3)])
def test_simulated_devices_step_in_where_real_ones_are_too_few(machine, real, n, made):
    fake = machine(real)
    assert devices.devices(n) == [torch.device("sim", i) for i in range(n)]
    assert fake.sim.count == made


@pytest.mark.parametrize(
    ("real", "made", "choice", "n", "says"),
    [
        (0, 2, None, 3, r"found 2 \(sim:0, sim:1\): call simgpu.enable\(3\)"),
        (0, 2, "cpu", 2, r"found 1 \(cpu\): unset D2LMINI_DEVICES"),
        (2, 0, "real", 3, r"found 2 \(cuda:0, cuda:1\): unset D2LMINI_DEVICES"),
    ],
)
def test_never_the_same_device_twice(machine, monkeypatch, real, made, choice, n, says):
    machine(real).sim.enable(made)
    if choice:
        monkeypatch.setenv("D2LMINI_DEVICES", choice)
    with pytest.raises(RuntimeError, match=says):
        devices.devices(n)
    assert len(devices.devices(n - 1)) == n - 1


@pytest.mark.parametrize(
    ("real", "kind", "made", "choice", "found"),
    [
        (0, "cuda", 3, None, "sim sim sim"),
        (1, "cuda", 3, None, "cuda"),
        (1, "cuda", 3, "sim", "sim sim sim"),
        (0, "cuda", 3, "real", "cpu"),
        (0, "cuda", 0, None, "cpu"),
        (2, "cuda", 0, "real", "cuda cuda"),
        (2, "cuda", 0, "cpu", "cpu"),
        (4, "cuda", 0, "sim", "sim sim"),  # made when they are asked for
        (2, "sim", 2, "real", "cpu"),  # once simulated GPUs are there, torch on a machine without a GPU names them
        (2, "sim", 2, None, "sim sim"),
    ],
)
def test_which_devices_are_meant(machine, monkeypatch, real, kind, made, choice, found):
    machine(real, kind).sim.enable(made)
    if choice:
        monkeypatch.setenv("D2LMINI_DEVICES", choice)
    assert " ".join(device.type for device in devices.try_all_gpus()) == found
    assert devices.num_gpus() == len(found.split()) - (found == "cpu")
    assert devices.try_gpu().type == found.split()[0]
    monkeypatch.setenv("D2LMINI_DEVICES", "gpu")
    with pytest.raises(ValueError, match="real, sim, cpu"):
        devices.num_gpus()


@pytest.mark.parametrize(
    ("function", "bad"),
    [
        *((devices.devices, bad) for bad in (0, -1, 1.5, True, "2", None)),
        *((function, bad) for function in (devices.gpu, devices.try_gpu) for bad in (-1, 0.0, "0", None)),
    ],
)
def test_numbers_are_checked(function, bad):
    with pytest.raises(ValueError, match="integer"):
        function(bad)


def test_synchronize_waits_for_each_device_once(machine, monkeypatch):
    fake = machine(3)
    devices.synchronize()
    assert sorted(map(str, fake.waited)) == ["cuda:0", "cuda:1", "cuda:2"]
    fake.waited.clear()
    devices.synchronize("cuda:1", torch.device("cuda:1"), "cpu")
    assert fake.waited == [torch.device("cuda:1")]
    devices.synchronize("sim:0")
    assert fake.sim.waited == [torch.device("sim:0")]
    fake, waited = machine(2, "sim"), []  # a real device where simulated ones lead
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(synchronize=waited.append))
    devices.synchronize("cuda:1", "cpu")
    assert (waited, fake.waited) == ([torch.device("cuda:1")], [])


def test_threads_are_set_inside_the_block_only_even_after_an_error():
    before = torch.get_num_threads()
    with contextlib.suppress(KeyError), devices.threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    assert torch.get_num_threads() == before


def test_streams_are_where_a_device_has_them():
    assert devices.streams(torch.device("cpu")) is None
    assert devices.streams(torch.device("sim", 0)).Stream(torch.device("sim", 0)).device.type == "sim"
    assert devices.streams(torch.device("mps")) is None


class Module:
    """Stands in for torch.cuda."""

    @staticmethod
    def get_device_properties(device):
        return SimpleNamespace(name="Card", total_memory=4 * 2**30, multi_processor_count=16)

    @staticmethod
    def mem_get_info(device):
        return 1 * 2**30, 4 * 2**30

    @staticmethod
    def can_device_access_peer(i, j):
        return {i, j} == {0, 2}


def test_describe_names_every_device_with_its_memory_and_links(machine, monkeypatch):
    machine(3)
    monkeypatch.setattr(torch, "get_device_module", lambda device: Module)
    monkeypatch.setattr(devices.host, "main_memory", lambda: devices.host.MainMemory(8 * 2**30, 2 * 2**30, True))
    assert devices.memory_info("cpu") == (2 * 2**30, 8 * 2**30)
    assert devices.memory_info("cuda:1") == (2**30, 4 * 2**30)
    cores, host, *rows, last = devices.describe().splitlines()
    assert re.fullmatch(r"cpu  \d+ cores?, 6\.0 of 8\.0 GiB used", cores)
    assert host.strip() == devices.processor()
    assert rows[2:4] == ["cuda:1  16 units, 3.0 of 4.0 GiB used", "  Card"]
    assert rows[6:] == ["GPU to GPU, 2 pairs: through the host", "GPU to GPU, 1 pair: directly"]
    assert f"torch {torch.__version__}" in last


def test_a_device_that_tells_nothing(machine, monkeypatch):
    machine(1, "mps")
    monkeypatch.setattr(torch, "get_device_module", lambda device: object())
    assert devices.memory_info("mps") == (None, None)
    assert devices.describe().splitlines()[2:4] == ["mps:0  ? units, ? GiB", "  MPS"]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            {"gpus": 2, "gpu": "M2070", "link": "PCIe2-x16"},
            ["host to each GPU: PCIe2-x16", "  8.00 GB/s in each direction", "GPU to GPU, 1 pair: through the host"],
        ),
        (
            {"machine": "DGX-1-V100"},
            [
                "host to each GPU: PCIe3-x16",
                "  15.75 GB/s in each direction",
                "GPU to GPU, 8 pairs: 1×NVLink2",
                "  25.00 GB/s in each direction",
                "GPU to GPU, 8 pairs: 2×NVLink2",
                "  50.00 GB/s in each direction",
                "GPU to GPU, 12 pairs: through the host",
                "to other machines: 4 × InfiniBand-EDR",
                "  12.50 GB/s in each direction",
            ],
        ),
    ],
)
def test_simulated_machines_show_their_links(monkeypatch, options, lines):
    monkeypatch.setenv("D2LMINI_DEVICES", "sim")
    simgpu.enable(**options)
    count = torch.sim.device_count()
    shown = devices.describe().splitlines()
    assert shown[2 + 2 * count : -1] == lines
    assert max(map(len, shown[2:])) <= 40  # what a phone has room for; the product's name in the second is the CPU's
    assert shown[-1].startswith("torch ")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_real_cuda(monkeypatch):
    monkeypatch.delenv("D2LMINI_DEVICES", raising=False)
    simgpu.enable(2, accelerator=False)  # whatever tests before this one had torch.accelerator mean
    assert devices.try_gpu() == torch.device("cuda", 0)
    assert torch.cuda.get_device_name(0) in devices.describe()
    devices.synchronize()
