"""Links as data, beside the GPUs of `gpus`: what the makers publish, with unit, date and source, and nothing invented.

Every number's unit is in its name. Rates of links are for ONE direction; a GPU that sends and receives at once moves
twice that, and makers' leaflets often print the doubled figure. A figure that its maker does not publish is None.

`check()` recomputes what can be recomputed: peak = cores × clock × 2 (a fused multiply-add is two operations), memory
bandwidth = bus width × rate ÷ 8, link rate = lanes × signalling rate × coding ÷ 8.
"""

from dataclasses import dataclass, replace

from simgpu.hardware.arguments import whole
from simgpu.hardware.gpus import GPU, GPUS


@dataclass(frozen=True)
class Link:
    """One connection between two ends, such as one NVLink, a PCIe slot or a network adapter.

    Attributes:
        name: The key in `LINKS`.
        released: When its standard or its maker's paper appeared, YYYY or YYYY-MM.
        lanes: Pairs of wires in each direction.
        transfers_per_s: Bits a second on one lane, coding included.
        coding: Data bits per bit sent, error correction included, such as 128/130; 1 where the source gives the data
            rate itself.
        bytes_per_s_per_direction: After line coding and before packet headers.
        latency_s: From one end to the other for the smallest message, of a program that runs on both already; None
            where unknown. Standards do not give it: these are NCCL's (hop of a ring with protocol LL,
            src/graph/tuning.cc, 2.28), or what a network's own plugin tells NCCL.
        source: The document that the figures are from.
    """

    name: str
    released: str
    lanes: int
    transfers_per_s: float
    coding: float
    bytes_per_s_per_direction: float
    latency_s: float | None
    source: str

    def times(self, count: int) -> "Link":
        """Return `count` such links side by side as one, as several NVLinks between two GPUs are used."""
        count = whole("the number of links", count, 1)
        rate = self.bytes_per_s_per_direction * count
        return replace(self, name=f"{count}×{self.name}", lanes=self.lanes * count, bytes_per_s_per_direction=rate)


NVLINKS_PER_GPU = {1: ("P100", 4), 2: ("V100", 6), 3: ("A100", 12), 4: ("H100 or H200", 18), 5: ("B200", 18)}
SHARP_GENERATION = 4  # from this NVLink on the switches add: "NVLink SHARP", NVIDIA H100 white paper, 2022
# The NVLink of a generation's SXM modules.
_MODULES = {"Pascal": 1, "Volta": 2, "Ampere": 3, "Hopper": 4, "Blackwell": 5}
_SLOTS = {
    "Fermi": "PCIe2-x16",
    "Ampere": "PCIe4-x16",
    "Ada": "PCIe4-x16",
    "Hopper": "PCIe5-x16",
    "Blackwell": "PCIe5-x16",
    "RTX Blackwell": "PCIe5-x16",
    "CDNA 3": "PCIe5-x16",
    "CDNA 4": "PCIe5-x16",
}  # others: PCIe 3


# 64/66 squeezed into 256/257, then 514 of 544 symbols for data and the rest for error correction: together 16/17.
_FEC = (256 / 257) * (514 / 544)


def _pcie(generation: int, released: str, gts: float, coding: float) -> Link:
    return Link(
        f"PCIe{generation}-x16",
        released,
        16,
        gts * 1e9,
        coding,
        16 * gts * coding / 8 * 1e9,
        1e-6,
        f"PCI-SIG, PCI Express base specification {generation}.0, {released[:4]}",
    )


def _nvlink(generation: int, released: str, lanes: int, gbits: float, paper: str) -> Link:
    chip, count = NVLINKS_PER_GPU[generation]
    return Link(
        f"NVLink{generation}",
        released,
        lanes,
        gbits * 1e9,
        1,
        lanes * gbits / 8 * 1e9,
        0.6e-6,
        f"NVIDIA {paper}; this is one link, a {chip} has {count}",
    )


def _infiniband(name: str, released: str, gbits: float, coding: float) -> Link:
    return Link(
        f"InfiniBand-{name}",
        released,
        4,
        gbits * 1e9,
        coding,
        4 * gbits * coding / 8 * 1e9,
        2.7e-6,
        "InfiniBand Trade Association, InfiniBand roadmap; four lanes",
    )


def _ethernet(gbits: int, released: str, lanes: int, lane_gbits: float, coding: float, standard: str) -> Link:
    return Link(
        f"Ethernet-{gbits}G",
        released,
        lanes,
        lane_gbits * 1e9,
        coding,
        gbits / 8 * 1e9,
        None,
        f"IEEE {standard}, {released[:4]}",
    )


# Amazon's network, an adapter. Its maker's tuner counts on 20 µs instead of 75 (internal/tuner/nccl_defaults.h).
_EFA = Link(
    "EFA-100G",
    "2020-11",
    1,
    100e9,
    1,
    12.5e9,
    75e-6,
    "Amazon, aws-ofi-nccl: bandwidth of a rail in its tuner, latency in src/platform-aws.c for p4d and p5",
)
LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        _pcie(2, "2007-01", 5, 8 / 10),
        _pcie(3, "2010-11", 8, 128 / 130),
        _pcie(4, "2017-10", 16, 128 / 130),
        _pcie(5, "2019-05", 32, 128 / 130),
        _pcie(6, "2022-01", 64, 242 / 256),  # of a flit's 256 bytes 8 are for its checksum and 6 for error correction
        _nvlink(1, "2016-04", 8, 20, "Tesla P100 white paper WP-08019-001, 2016"),
        _nvlink(2, "2017-05", 8, 25, "Tesla V100 white paper WP-08608-001, 2017"),
        _nvlink(3, "2020-05", 4, 50, "A100 white paper, 2020"),
        _nvlink(4, "2022-03", 2, 100, "H100 white paper, 2022"),
        _nvlink(5, "2024-03", 2, 200, "HGX B200 data sheet, 2024"),
        _infiniband("QDR", "2007", 10, 8 / 10),
        _infiniband("FDR", "2011", 14.0625, 64 / 66),
        _infiniband("EDR", "2014", 25.78125, 64 / 66),
        _infiniband("HDR", "2018", 53.125, _FEC),
        _infiniband("NDR", "2022", 106.25, _FEC),
        _infiniband("XDR", "2023", 212.5, _FEC),
        _ethernet(1, "1999-06", 4, 0.25, 1, "802.3ab, 1000BASE-T"),
        _ethernet(10, "2002-06", 1, 10.3125, 64 / 66, "802.3ae, 10GBASE-R"),
        _ethernet(25, "2016-06", 1, 25.78125, 64 / 66, "802.3by, 25GBASE-R"),
        _ethernet(40, "2010-06", 4, 10.3125, 64 / 66, "802.3ba, 40GBASE-R"),
        _ethernet(100, "2010-06", 4, 25.78125, 64 / 66, "802.3ba, 100GBASE-LR4"),
        _ethernet(200, "2017-12", 4, 53.125, _FEC, "802.3bs, 200GBASE-DR4"),
        _ethernet(400, "2017-12", 8, 53.125, _FEC, "802.3bs, 400GBASE-LR8"),
        _EFA,
    )
}


def host_link(gpu: GPU) -> str:
    """Return the name, in `LINKS`, of the bus by which a GPU reaches its host: PCIe of its time, 16 lanes.

    Each maker's document in `source` names it; PCIe 3 served from 2012 (K40) to 2018 (V100).
    """
    return _SLOTS.get(gpu.generation, "PCIe3-x16")


def nvlink(gpu: GPU) -> str | None:
    """Return the name, in `LINKS`, of the NVLink that an SXM module has; None for a PCIe card."""
    return f"NVLink{_MODULES[gpu.generation]}" if "SXM" in gpu.name else None


def check() -> list[str]:
    """Return one line for every figure of `GPUS` and `LINKS` that does not follow from the others within 1 %."""
    gpus, links = GPUS.values(), LINKS.values()
    figures = [(gpu.name, "peak", gpu.peak_fp32_flops_per_s, gpu.cores * gpu.clock_hz * 2) for gpu in gpus]
    figures += [
        (gpu.name, "memory bandwidth", gpu.memory_bytes_per_s, gpu.memory_bits * gpu.memory_transfers_per_s / 8)
        for gpu in gpus
        if gpu.memory_transfers_per_s is not None
    ]
    figures += [
        (link.name, "rate", link.bytes_per_s_per_direction, link.lanes * link.transfers_per_s * link.coding / 8)
        for link in links
    ]
    return [
        f"{name}: {what} is given as {given:.4g} but the other figures make {expected:.4g}"
        for name, what, given, expected in figures
        if abs(given - expected) > 0.01 * expected
    ]
