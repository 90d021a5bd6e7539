import re
from collections import Counter
from dataclasses import replace

import pytest

from simgpu.hardware import links
from simgpu.hardware.arguments import find
from simgpu.hardware.gpus import GIB, GPUS, MIB
from simgpu.hardware.links import LINKS, NVLINKS_PER_GPU, host_link, nvlink
from simgpu.hardware.machines import MACHINES, build

EVERYTHING = [*GPUS.values(), *LINKS.values(), *MACHINES.values()]


def test_figures_agree_with_one_another():
    assert links.check() == []


@pytest.mark.parametrize(
    ("table", "name", "field"),
    [
        *(
            (GPUS, "GTX 980", field)
            for field in ("cores", "clock_hz", "peak_fp32_flops_per_s", "memory_bits", "memory_bytes_per_s")
        ),
        (LINKS, "PCIe3-x16", "bytes_per_s_per_direction"),
    ],
)
def test_check_finds_a_wrong_figure(table, name, field, monkeypatch):
    monkeypatch.setitem(table, name, replace(table[name], **{field: getattr(table[name], field) * 1.05}))
    (told,) = links.check()
    assert told.startswith(f"{name}: ")


@pytest.mark.parametrize("entry", EVERYTHING, ids=lambda entry: entry.name)
def test_every_entry_has_source_and_date(entry):
    assert len(entry.source) > 10
    assert re.fullmatch(r"(19|20)\d\d(-(0[1-9]|1[0-2]))?", entry.released)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_units_are_plausible(gpu):
    assert 1e12 <= gpu.peak_fp32_flops_per_s < 2e14
    assert 1e11 <= gpu.memory_bytes_per_s < 1e13
    assert GIB <= gpu.memory_bytes < 300 * GIB
    assert gpu.l2_bytes <= gpu.multiprocessors * MIB
    assert gpu.l2_bytes < GIB // 10 or gpu.generation == "Blackwell"  # which has two dies
    assert gpu.cores % gpu.multiprocessors == 0


def test_links_carry_what_their_standards_and_names_promise():
    gigabytes = {name: link.bytes_per_s_per_direction / 1e9 for name, link in LINKS.items()}
    expected = {
        "PCIe2-x16": 8,
        "PCIe3-x16": 15.754,
        "PCIe4-x16": 31.508,
        "PCIe5-x16": 63.015,
        "PCIe6-x16": 121,
        "NVLink1": 20,
        "NVLink2": 25,
        "InfiniBand-QDR": 4,
        "InfiniBand-FDR": 6.818,
        "InfiniBand-EDR": 12.5,
        "InfiniBand-HDR": 25,
        "InfiniBand-NDR": 50,
        "InfiniBand-XDR": 100,
    }
    expected |= {f"Ethernet-{gigabits}G": gigabits / 8 for gigabits in (1, 10, 25, 40, 100, 200, 400)}
    assert {name: gigabytes[name] for name in expected} == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(("name", "teraflops"), [("GTX 980", 4.612), ("K80 (one of two chips)", 1.87 * 3 / 2)])
def test_published_peaks_at_base_clock(name, teraflops):
    # The GTX 980's white paper; 1.87 TFLOPS in float64, a third of float32, for the K80's two chips without boost.
    slow = GPUS[name].at_base_clock()
    assert slow.peak_fp32_flops_per_s == pytest.approx(teraflops * 1e12, rel=0.002)
    assert slow.memory_bytes_per_s == GPUS[name].memory_bytes_per_s


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("M2070", 0.515),
        ("K40", 1.43),
        ("K80 (one of two chips)", 2.91 / 2),
        ("V100-SXM2-16GB", 7.8),
        ("A100-SXM4-40GB", 9.7),
        ("H100-SXM5-80GB", 33.5),
    ],
)
def test_published_float64_peaks(name, teraflops):
    gpu = GPUS[name]
    assert gpu.peak_fp32_flops_per_s * gpu.fp64_ratio == pytest.approx(teraflops * 1e12, rel=0.01)


# Of one multiprocessor: ordinary cores, tensor cores, products of each tensor core a clock in float16 and in TF32, and
# the clock in MHz that the tensor cores' peak is given for. From the white papers' descriptions of the chips.
CHIPS = {
    (32,): "GTX 580, GTX 580 3GB, M2070",
    (192,): "K40, K80 (one of two chips)",
    (128,): "GTX 980, GTX 1080, GTX 1080 Ti",
    (64,): "P100-SXM2-16GB, P100-PCIe-16GB",
    (64, 8, 64, None, 1370): "V100-PCIe-16GB, V100-PCIe-32GB",
    (64, 8, 64, None, 1590): "T4",
    (64, 8, 64, None, 1530): "V100-SXM2-16GB, V100-SXM2-32GB",
    (64, 8, 32, None, 1635): "RTX 2080 Ti",
    (64, 8, 64, None, 1770): "Titan RTX, Quadro RTX 6000, Quadro RTX 8000",
    (128, 4, 64, 32, 1695): "RTX 3090",
    (128, 4, 64, 32, 1710): "RTX 3080",
    (128, 4, 64, 32, 1725): "RTX 3070",
    (128, 4, 64, 32, 2520): "RTX 4090",
    (128, 4, 128, 64, 1560): "RTX A4000",
    (128, 4, 128, 64, 1695): "RTX A5000, A10",
    (128, 4, 128, 64, 1740): "A40",
    (128, 4, 128, 64, 1800): "RTX A6000",
    (128, 4, 128, 64, 2040): "L4",
    (128, 4, 128, 64, 2505): "RTX 6000 Ada, L40S",  # 362.05 in 16 bits are at 2490 MHz, 183 in TF32 at 2520
    (64, 4, 256, 128, 1440): "A30",
    (128, 4, 512, 256, 1620): "H100-PCIe-80GB",
    (64, 4, 256, 128, 1410): "A100-SXM4-40GB, A100-SXM4-80GB, A100-PCIe-40GB, A100-PCIe-80GB",
    (128, 4, 512, 256, 1830): "H100-SXM5-80GB, H200-SXM5-141GB, GH200-96GB",
    (128, 4, 1024, 512, 1856): "B200-SXM-180GB",
    (128, 4, 64, 32, 2407): "RTX 5090",
    (128, 4, 256, 128, 2100): "MI300X, MI325X",
    (128, 4, 512, None, 2400): "MI355X",
}
CHIPS = {name: chip for chip, names in CHIPS.items() for name in names.split(", ")}


def test_every_gpu_has_its_multiprocessors_and_the_dense_tensor_peaks_follow_from_them():
    assert CHIPS.keys() == GPUS.keys()
    for name, (cores, *tensor) in CHIPS.items():
        gpu = GPUS[name]
        assert gpu.cores == gpu.multiprocessors * cores
        units, half, tf32, mhz = tensor or (0, None, None, 0)
        for given, products in ((gpu.peak_tensor_16_flops_per_s, half), (gpu.peak_tensor_tf32_flops_per_s, tf32)):
            peak = products and pytest.approx(gpu.multiprocessors * units * products * 2 * mhz * 1e6, rel=0.0065)
            assert given == peak


def test_second_level_caches_follow_from_the_memory_controllers():
    # One slice for each memory controller: the controller's bits, the slice's MiB.
    slices = {
        "GTX 580": (64, 0.125),
        "M2070": (64, 0.125),
        "K40": (64, 0.25),
        "K80 (one of two chips)": (64, 0.25),
        "GTX 980": (64, 0.5),
        "GTX 1080": (32, 0.25),
        "V100-SXM2-16GB": (512, 0.75),
        "RTX 3090": (32, 0.5),
        "A100-SXM4-40GB": (512, 4),
        "H100-SXM5-80GB": (512, 5),
        "H200-SXM5-141GB": (512, 5),
    }
    for name, (bits, mebibytes) in slices.items():
        assert GPUS[name].l2_bytes == GPUS[name].memory_bits // bits * mebibytes * MIB


def test_published_nvlink_totals_are_of_both_directions():
    # NVIDIA prints 160, 300, 600, 900 and 1800 GB/s for a P100, V100, A100, H100 and B200; 4.8 TB/s for eight A100,
    # 7.2 for eight H200.
    port = MACHINES["8xH200"].port.bytes_per_s_per_direction
    assert [
        2 * count * LINKS[f"NVLink{g}"].bytes_per_s_per_direction / 1e9 for g, (_, count) in NVLINKS_PER_GPU.items()
    ] == [160, 300, 600, 900, 1800]
    assert 8 * 2 * port == 7.2e12
    assert 8 * 2 * build(8, "A100-SXM4-40GB", "NVLink3").port.bytes_per_s_per_direction == 4.8e12


def test_several_links_side_by_side_stay_consistent(monkeypatch):
    double = LINKS["NVLink2"].times(2)
    assert double.bytes_per_s_per_direction == 50e9
    monkeypatch.setitem(LINKS, double.name, double)
    assert links.check() == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: find(GPUS, "V100", "GPU"), "'V100': choose one of V100-SXM2-16GB, .*V100-PCIe-32GB$"),
        (lambda: find(GPUS, "v1000", "GPU"), "'v1000': choose one of GTX 580, .*V100-SXM2-16GB"),
        (lambda: build(2, "GTX 980", "PCIe9"), "'PCIe9'"),
        (lambda: build(2, "GTX 980", "Ethernet-10G"), "PCIe or NVLink"),
        (lambda: GPUS["V100-SXM2-16GB"].at_base_clock(), "base clock"),
        *((lambda count=count: build(count, "GTX 980"), "at least 1") for count in (0, -1, 1.0, "2")),
        *(
            (lambda a=a, b=b: build(2, "GTX 980").route(a, b), "0 to 1")
            for a, b in ((2, 0), (0, 2), (-1, None), (None, 5))
        ),
        *((lambda end=end: build(2, "GTX 980").route(end, end), "different") for end in (None, 0)),
    ],
)
def test_what_cannot_be_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_staged_copies_take_two_hops_and_peers_one():
    staged, direct = build(2, "GTX 980"), build(2, "GTX 980", peer=True)
    assert [hop.wires for hop in staged.route(0, 1)] == [("PCIe gpu0 out",), ("PCIe gpu1 in",)]
    assert [hop.wires for hop in direct.route(0, 1)] == [("PCIe gpu0 out", "PCIe gpu1 in")]
    assert (staged.peer(0, 1), direct.peer(0, 1)) == (False, True)


def test_gpus_behind_a_switch_share_the_way_to_the_host_but_not_to_each_other():
    node = MACHINES["cluster-node-2012"]
    assert set(node.route(None, 0)[0].wires) & set(node.route(None, 1)[0].wires) == {"PCIe switch0 in"}
    assert not any("switch" in wire for hop in node.route(0, 1) for wire in hop.wires)


def test_cube_mesh_uses_six_links_of_every_gpu():
    dgx, links, partners = MACHINES["DGX-1-V100"], Counter(), Counter()
    for (a, b), count in dgx.pairs:
        assert a < b
        links.update({a: count, b: count})
        partners.update([a, b])
    assert set(links.values()) == {6}
    assert set(partners.values()) == {4}
    assert not dgx.peer(0, 5)


def test_cube_mesh_as_a_dgx_1_reports_it():
    # The first two GPUs' links in the topology file that NCCL wrote on one, github.com/NVIDIA/nccl/issues/671.
    dgx = MACHINES["DGX-1-V100"]
    links = [{b if a == gpu else a: n for (a, b), n in dgx.pairs if gpu in (a, b)} for gpu in (0, 1)]
    assert links == [{1: 1, 2: 1, 3: 2, 4: 2}, {0: 1, 2: 2, 3: 1, 5: 2}]
    rates = [dgx.route(0, other)[0].link.bytes_per_s_per_direction for other in links[0]]
    assert 2 * sum(rates) == 300e9  # the white paper's figure for one V100, both directions


@pytest.mark.parametrize(
    ("gpu", "host", "own"),
    [
        ("M2070", "PCIe2-x16", None),
        ("K40", "PCIe3-x16", None),
        ("V100-SXM2-16GB", "PCIe3-x16", "NVLink2"),
        ("RTX A6000", "PCIe4-x16", None),
        ("H100-PCIe-80GB", "PCIe5-x16", None),
        ("T4", "PCIe3-x16", None),
        ("P100-SXM2-16GB", "PCIe3-x16", "NVLink1"),
        ("P100-PCIe-16GB", "PCIe3-x16", None),
        ("RTX 3090", "PCIe4-x16", None),
        ("A100-SXM4-40GB", "PCIe4-x16", "NVLink3"),
        ("H100-SXM5-80GB", "PCIe5-x16", "NVLink4"),
        ("H200-SXM5-141GB", "PCIe5-x16", "NVLink4"),
    ],
)
def test_a_machine_is_joined_by_what_its_cards_have(gpu, host, own):
    assert (host_link(GPUS[gpu]), nvlink(GPUS[gpu])) == (host, own)
    machine = build(2, gpu)
    assert machine.host_link.name == host
    assert machine.peer(0, 1) == bool(own)
    assert machine.route(0, 1)[0].link.name.endswith(own or host)
    assert machine == build(2, gpu, own or host)


def test_nvlink_adds_in_the_switch_from_hopper_on():
    assert [build(8, gpu).sharp for gpu in ("A100-SXM4-80GB", "H100-SXM5-80GB", "GTX 1080")] == [False, True, False]
    assert [name for name, machine in MACHINES.items() if machine.sharp] == [
        "DGX-H100",
        "8xH200",
        "8xB200",
        "p5.48xlarge",
    ]


def test_the_nodes_of_today_as_their_data_sheets_give_them():
    """DGX A100: 600 GB/s of NVLink a GPU and 1.6 Tbit/s of network; DGX H100: 900 GB/s and 3.2 Tbit/s."""
    for name, nvlink_rate, terabits in (("DGX-A100", 600e9, 1.6), ("DGX-H100", 900e9, 3.2), ("8xH200", 900e9, 3.2)):
        node = MACHINES[name]
        assert 2 * node.port.bytes_per_s_per_direction == nvlink_rate
        assert node.adapters * node.network.bytes_per_s_per_direction * 8e-12 == pytest.approx(terabits)
