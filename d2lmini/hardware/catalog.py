"""GPUs, links and machines as data: what the makers publish, with unit, date and source, and nothing invented.

Every number's unit is in its name. Rates of links are for ONE direction; a GPU that sends and receives at once moves
twice that, and makers' leaflets often print the doubled figure. A figure that its maker does not publish is None.

`check()` recomputes what can be recomputed: peak = cores × clock × 2 (a fused multiply-add is two operations), memory
bandwidth = bus width × rate ÷ 8, link rate = lanes × signalling rate × coding ÷ 8.
"""

import re
from dataclasses import dataclass, replace

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class GPU:
    """One GPU: one chip and its memory; a board with two chips is two of these.

    peak_fp32_flops_per_s: without tensor cores, at `clock_hz`, the clock that the maker's own figure is given for.
    peak_tensor_16_flops_per_s: float16 (and bfloat16 where `bf16`), float32 sums; None without tensor cores.
    Dense: data sheets since 2020 also print twice as much, for matrices of which half is zero in a fixed pattern.
    peak_tensor_tf32_flops_per_s: float32 operands rounded to TF32 on the tensor cores; None where there is none.
    base_clock_hz: the clock without boost, None where unpublished; `at_base_clock()` gives the GPU at that clock.
    fp64_ratio: float64 peak as a share of the float32 peak, until 2017 from the table of arithmetic throughput in the
    CUDA C Programming Guide, 4.2 (2012) and 10.0 (2018). memory_bits: width of the memory's bus.
    memory_bytes: as sold, in units of 2**30 bytes. memory_transfers_per_s: per pin of the bus.
    released: the month it was announced or first sold, YYYY-MM.
    """

    name: str
    released: str
    cores: int
    clock_hz: float
    base_clock_hz: float | None
    peak_fp32_flops_per_s: float
    peak_tensor_tf32_flops_per_s: float | None
    peak_tensor_16_flops_per_s: float | None
    bf16: bool
    fp64_ratio: float
    memory_bytes: int
    memory_bits: int
    memory_transfers_per_s: float | None
    memory_bytes_per_s: float
    l2_bytes: int
    multiprocessors: int
    source: str

    def at_base_clock(self):
        """Return this GPU without boost; raises ValueError where the maker publishes no base clock."""
        if self.base_clock_hz is None:
            raise ValueError(f"no base clock is published for the {self.name}")
        slower = self.base_clock_hz / self.clock_hz
        scaled = {field: getattr(self, field) and getattr(self, field) * slower for field in _PEAKS}
        return replace(self, name=f"{self.name} at base clock", clock_hz=self.base_clock_hz, **scaled)


_PEAKS = ("peak_fp32_flops_per_s", "peak_tensor_tf32_flops_per_s", "peak_tensor_16_flops_per_s")


@dataclass(frozen=True)
class Link:
    """One connection. `bytes_per_s_per_direction` is after line coding and before packet headers.

    lanes: pairs of wires in each direction. transfers_per_s: bits a second on one lane, coding included.
    coding: data bits per bit sent, 8/10 or 128/130 for instance, error correction included; 1 where the source gives
    the data rate itself.
    latency_s: from one end to the other for the smallest message, of a program that is under way on both. Standards do
    not give it: these are NCCL's (hop of a ring with protocol LL, src/graph/tuning.cc, 2.28); None where it has none.
    bidirectional: both directions at once, each at the full rate.
    """

    name: str
    released: str
    lanes: int
    transfers_per_s: float
    coding: float
    bytes_per_s_per_direction: float
    latency_s: float | None
    source: str
    bidirectional: bool = True

    def times(self, count):
        """Return `count` such links side by side, as several NVLinks between two GPUs are used."""
        rate = self.bytes_per_s_per_direction * count
        return replace(self, name=f"{count}×{self.name}", lanes=self.lanes * count, bytes_per_s_per_direction=rate)


def _gpu(name, released, cores, mhz, base_mhz, tflops, tf32, tensor16, bf16, fp64, gib, bits, gts, gbs, l2_mib, sms,
         source):  # fmt: skip
    """Build a row of the table, given in the units of data sheets: MHz, TFLOPS, GiB, GT/s, GB/s, MiB."""
    return GPU(name, released, cores, mhz * 1e6, base_mhz and base_mhz * 1e6, tflops * 1e12, tf32 and tf32 * 1e12,
               tensor16 and tensor16 * 1e12, bf16, fp64, int(gib * GIB), bits, gts and gts * 1e9, gbs * 1e9,
               int(l2_mib * MIB), sms, source)  # fmt: skip


_TABLE = (
    # name, month, cores, MHz, base MHz, TFLOPS fp32, tf32, fp16 tensor, bf16, fp64 ratio, GiB, bits, GT/s, GB/s, L2 MiB
    _gpu("GTX 580", "2010-11", 512, 1544, 1544, 1.581, None, None, False, 1 / 8, 1.5, 384, 4.008, 192.4, 0.75, 16,
         "NVIDIA GeForce GTX 580 specifications, 2010 (the processor clock); L2: NVIDIA GF100 white paper, 2010"),
    _gpu("GTX 580 3GB", "2011", 512, 1544, 1544, 1.581, None, None, False, 1 / 8, 3, 384, 4.008, 192.4, 0.75, 16,
         "as the GTX 580, with the memory named by Krizhevsky, Sutskever and Hinton, NeurIPS 2012"),
    _gpu("M2070", "2010-07", 448, 1150, 1150, 1.03, None, None, False, 1 / 2, 6, 384, 3.132, 150.3, 0.75, 14,
         "NVIDIA board specification BD-05238-001, 2010 (ECC leaves 5.25 GB); L2: NVIDIA Fermi white paper, 2009"),
    _gpu("K40", "2013-11", 2880, 745, 745, 4.29, None, None, False, 1 / 3, 12, 384, 6, 288, 1.5, 15,
         "NVIDIA board specification BD-06902-001, 2013 (base clock; boost to 875 MHz must be asked for); L2: NVIDIA "
         "Kepler GK110/210 white paper, 2014"),
    _gpu("K80 (one of two chips)", "2014-11", 2496, 875, 562, 4.37, None, None, False, 1 / 3, 12, 384, 5, 240, 1.5, 13,
         "NVIDIA board specification BD-07317-001, 2015 (half of the board's 8.74 TFLOPS, with boost, and 480 GB/s); "
         "L2: NVIDIA Kepler GK110/210 white paper, 2014"),
    _gpu("GTX 980", "2014-09", 2048, 1216, 1126, 4.981, None, None, False, 1 / 32, 4, 256, 7.01, 224.3, 2, 16,
         "NVIDIA GeForce GTX 980 white paper, 2014 (which prints 4612 GFLOPS, at base clock)"),
    _gpu("GTX 1080", "2016-05", 2560, 1733, 1607, 8.873, None, None, False, 1 / 32, 8, 256, 10, 320, 2, 20,
         "NVIDIA GeForce GTX 1080 white paper, 2016"),
    _gpu("V100-SXM2-16GB", "2017-05", 5120, 1530, None, 15.7, None, 125, False, 1 / 2, 16, 4096, 1.755, 898.6, 6, 80,
         "NVIDIA Tesla V100 GPU architecture white paper WP-08608-001, 2017 (bandwidth rounded there to 900 GB/s); "
         "memory clock, 877.5 MHz: NVIDIA A100 white paper, 2020"),
    _gpu("RTX 3090", "2020-09", 10496, 1695, 1400, 35.58, 35.6, 71, True, 1 / 64, 24, 384, 19.5, 936, 6, 82,
         "NVIDIA Ampere GA102 GPU architecture white paper, 2020 (16-bit products with float32 sums); base clock: "
         "NVIDIA GeForce RTX 3090 specifications, 2020"),
    _gpu("A100-SXM4-40GB", "2020-05", 6912, 1410, None, 19.49, 156, 312, True, 1 / 2, 40, 5120, 2.43, 1555, 40, 108,
         "NVIDIA A100 Tensor Core GPU architecture white paper, 2020"),
    _gpu("A100-SXM4-80GB", "2020-11", 6912, 1410, None, 19.49, 156, 312, True, 1 / 2, 80, 5120, 3.186, 2039, 40, 108,
         "NVIDIA A100 80 GB data sheet, 2020; cores, L2: A100 white paper, 2020; memory clock: nvidia-smi, 1593 MHz"),
    _gpu("H100-SXM5-80GB", "2022-03", 16896, 1980, None, 66.9, 494.7, 989.4, True, 1 / 2, 80, 5120, 5.238, 3352, 50,
         132, "NVIDIA H100 Tensor Core GPU architecture white paper, 2023 (tensor cores at 1830 MHz)"),
    _gpu("H200-SXM5-141GB", "2023-11", 16896, 1980, None, 66.9, 494.7, 989.4, True, 1 / 2, 141, 6144, None, 4800, 60,
         132, "NVIDIA H200 data sheet, 2023; the chip is the H100's: H100 white paper, 2023, with 60 MB of L2 in the "
         "whole chip, all in use here as cudaGetDeviceProperties says"),
)  # fmt: skip
GPUS = {gpu.name: gpu for gpu in _TABLE}

NVLINKS_PER_GPU = {1: ("P100", 4), 2: ("V100", 6), 3: ("A100", 12), 4: ("H100 or H200", 18)}
SHARP_GENERATION = 4  # from this NVLink on the switches add: "NVLink SHARP", NVIDIA H100 white paper, 2022
_MODULES = {"SXM2": 2, "SXM4": 3, "SXM5": 4}  # the NVLink of a module's socket
_SLOTS = {"PCIe2-x16": ("GTX 580", "GTX 580 3GB", "M2070"),
          "PCIe4-x16": ("RTX 3090", "A100-SXM4-40GB", "A100-SXM4-80GB"),
          "PCIe5-x16": ("H100-SXM5-80GB", "H200-SXM5-141GB")}  # fmt: skip


# 64/66 squeezed into 256/257, then 514 of 544 symbols for data and the rest for error correction: together 16/17.
_FEC = (256 / 257) * (514 / 544)


def _pcie(generation, released, gts, coding):
    return Link(f"PCIe{generation}-x16", released, 16, gts * 1e9, coding, 16 * gts * coding / 8 * 1e9, 1e-6,
                f"PCI-SIG, PCI Express base specification {generation}.0, {released[:4]}")  # fmt: skip


def _nvlink(generation, released, lanes, gbits, paper):
    chip, count = NVLINKS_PER_GPU[generation]
    return Link(f"NVLink{generation}", released, lanes, gbits * 1e9, 1, lanes * gbits / 8 * 1e9, 0.6e-6,
                f"NVIDIA {paper}; this is one link, a {chip} has {count}")  # fmt: skip


def _infiniband(name, released, gbits, coding):
    return Link(f"InfiniBand-{name}", released, 4, gbits * 1e9, coding, 4 * gbits * coding / 8 * 1e9, 2.7e-6,
                "InfiniBand Trade Association, InfiniBand roadmap; four lanes")  # fmt: skip


def _ethernet(gbits, released, lanes, lane_gbits, coding, standard):
    return Link(f"Ethernet-{gbits}G", released, lanes, lane_gbits * 1e9, coding, gbits / 8 * 1e9, None,
                f"IEEE {standard}, {released[:4]}")  # fmt: skip


LINKS = {link.name: link for link in (
    _pcie(2, "2007-01", 5, 8 / 10), _pcie(3, "2010-11", 8, 128 / 130),
    _pcie(4, "2017-10", 16, 128 / 130), _pcie(5, "2019-05", 32, 128 / 130),
    _nvlink(1, "2016-04", 8, 20, "Tesla P100 white paper WP-08019-001, 2016"),
    _nvlink(2, "2017-05", 8, 25, "Tesla V100 white paper WP-08608-001, 2017"),
    _nvlink(3, "2020-05", 4, 50, "A100 white paper, 2020"), _nvlink(4, "2022-03", 2, 100, "H100 white paper, 2022"),
    _infiniband("QDR", "2007", 10, 8 / 10), _infiniband("FDR", "2011", 14.0625, 64 / 66),
    _infiniband("EDR", "2014", 25.78125, 64 / 66), _infiniband("HDR", "2018", 53.125, _FEC),
    _infiniband("NDR", "2022", 106.25, _FEC),
    _ethernet(1, "1999-06", 4, 0.25, 1, "802.3ab, 1000BASE-T"),
    _ethernet(10, "2002-06", 1, 10.3125, 64 / 66, "802.3ae, 10GBASE-R"),
    _ethernet(25, "2016-06", 1, 25.78125, 64 / 66, "802.3by, 25GBASE-R"),
    _ethernet(40, "2010-06", 4, 10.3125, 64 / 66, "802.3ba, 40GBASE-R"),
    _ethernet(100, "2010-06", 4, 25.78125, 64 / 66, "802.3ba, 100GBASE-LR4"),
    _ethernet(200, "2017-12", 4, 53.125, _FEC, "802.3bs, 200GBASE-DR4"),
    _ethernet(400, "2017-12", 8, 53.125, _FEC, "802.3bs, 400GBASE-LR8"),
)}  # fmt: skip


def host_link(gpu):
    """Return the name of the bus by which a GPU of the table reaches its host: PCIe of its time, 16 lanes.

    Each maker's document in `source` names it; PCIe 3 served from 2012 (K40) to 2018 (V100).
    """
    return next((link for link, names in _SLOTS.items() if gpu.name in names), "PCIe3-x16")


def nvlink(gpu):
    """Return the name of the NVLink that a GPU of the table has, None for a card without: SXM modules have one."""
    generation = next((number for socket, number in _MODULES.items() if socket in gpu.name), None)
    return generation and f"NVLink{generation}"


def gpu_named(name):
    """Return the GPU that `name` means: a name of the table, or one as nvidia-smi and tables of measurements write it.

    "NVIDIA H100 80GB HBM3" and "H100-80GB-HBM3" mean the H100-SXM5-80GB, "H200" the H200-SXM5-141GB. Raises ValueError
    that lists the names there are, also when several cards could be meant.
    """
    words = re.split(r"[ -]", re.sub(r"^(NVIDIA|Tesla|GeForce)[ -]", "", name))
    if name in GPUS or "PCI" in name:
        return find(GPUS, name, "GPU")
    alike = [gpu for gpu in GPUS.values() if gpu.name.split("-")[0] == words[0] and nvlink(gpu)]
    meant = [gpu for gpu in alike if gpu.name.split("-")[-1] in words] if len(alike) > 1 else alike
    return meant[0] if len(meant) == 1 else find(GPUS, name, "GPU")


def check():
    """Return one line for every figure that does not follow from the others within 1 %; an empty list is good."""
    wrong = []
    for gpu in GPUS.values():
        wrong += _differs(gpu.name, "peak", gpu.peak_fp32_flops_per_s, gpu.cores * gpu.clock_hz * 2)
        if gpu.memory_transfers_per_s is not None:
            expected = gpu.memory_bits * gpu.memory_transfers_per_s / 8
            wrong += _differs(gpu.name, "memory bandwidth", gpu.memory_bytes_per_s, expected)
    for link in LINKS.values():
        expected = link.lanes * link.transfers_per_s * link.coding / 8
        wrong += _differs(link.name, "rate", link.bytes_per_s_per_direction, expected)
    return wrong


def _differs(name, what, given, expected):
    off = abs(given - expected) > 0.01 * expected
    return [f"{name}: {what} is given as {given:.4g} but the other figures make {expected:.4g}"] if off else []


def find(table, name, what):
    """Return `table[name]`; raises ValueError that lists the names there are, `what` saying of what kind they are."""
    if name not in table:
        raise ValueError(f"unknown {what} {name!r}: choose one of {', '.join(table)}")
    return table[name]
