"""Named machines with their sources, and functions that put others together: `build`, and `cluster` for several nodes.

What the GPUs of a machine reach by which wires, and how a copy goes, stands in `topology`.
"""

from simgpu.hardware.arguments import find, whole
from simgpu.hardware.gpus import GPUS
from simgpu.hardware.links import LINKS, NVLINKS_PER_GPU, SHARP_GENERATION, Link, host_link, nvlink
from simgpu.hardware.topology import Cluster, Machine


def _port(generation: int) -> Link:
    """Return all NVLinks of a GPU of that generation, as they reach a switch."""
    return LINKS[f"NVLink{generation}"].times(NVLINKS_PER_GPU[generation][1])


def build(gpus: int, gpu: str, link: str | None = None, peer: bool = False) -> Machine:
    """Return a machine of equal GPUs, put together from the tables.

    A PCIe link gives each GPU its own slot. An NVLink joins every pair through a switch, with all the links that a GPU
    has, and the host is then reached over the card's PCIe.

    Args:
        gpus: The number of GPUs, at least 1.
        gpu: A name in `GPUS`.
        link: A name in `LINKS` that begins with PCIe or NVLink; by default NVLink for an SXM module, else the PCIe of
            the card's time.
        peer: Whether GPUs on PCIe copy to each other without a stop in the host's memory.

    Raises:
        ValueError: A name is unknown, or `gpus` is no whole number from 1 on.

    >>> machine = hardware.build(2, "V100-SXM2-16GB")
    >>> [hop.link.name for hop in machine.route(0, 1)]
    ['6×NVLink2']
    """
    gpus = whole("the number of GPUs", gpus, 1)
    chosen = find(GPUS, gpu, "GPU")
    link = link or nvlink(chosen) or host_link(chosen)
    wire, port, sharp = find(LINKS, link, "link"), None, False
    if not link.startswith(("PCIe", "NVLink")):
        raise ValueError(f"GPUs of one machine are joined by a PCIe or NVLink link, got {link!r}")
    if link.startswith("NVLink"):
        port, wire = _port(int(link[-1])), LINKS[host_link(chosen)]
        sharp = int(link[-1]) >= SHARP_GENERATION
    name = f"{gpus} × {gpu}, {link}"
    return Machine(name, chosen.released, chosen, gpus, wire, "put together by hand", 1, peer, port=port, sharp=sharp)


# `nvidia-smi topo -m` of a DGX-1 with V100: NV1 and NV2 are one and two NVLinks; 16 pairs, six links a GPU.
_CUBE_MESH = {
    (0, 1): 1,
    (0, 2): 1,
    (0, 3): 2,
    (0, 4): 2,
    (1, 2): 2,
    (1, 3): 1,
    (1, 5): 2,
    (2, 3): 2,
    (2, 6): 1,
    (3, 7): 1,
    (4, 5): 1,
    (4, 6): 1,
    (4, 7): 2,
    (5, 6): 2,
    (5, 7): 1,
    (6, 7): 2,
}

MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        Machine(
            "desktop-2012",
            "2012",
            GPUS["GTX 580 3GB"],
            2,
            LINKS["PCIe2-x16"],
            "Krizhevsky, Sutskever and Hinton, NeurIPS 2012: two GTX 580 that read each other's memory directly",
            peer_over_host_link=True,
        ),
        Machine(
            "desktop-2020",
            "2020",
            GPUS["RTX 3090"],
            2,
            LINKS["PCIe4-x16"],
            "two cards without an NVLink bridge: the driver stages copies between them through the host",
        ),
        Machine(
            "cluster-node-2012",
            "2012",
            GPUS["M2070"],
            2,
            LINKS["PCIe2-x16"],
            "SHARCNET's cluster monk: two GPUs behind a PCIe switch, InfiniBand QDR",
            gpus_per_switch=2,
            peer_over_host_link=True,
            network=LINKS["InfiniBand-QDR"],
            adapters=1,
        ),
        Machine(
            "DGX-1-V100",
            "2017-09",
            GPUS["V100-SXM2-16GB"],
            8,
            LINKS["PCIe3-x16"],
            "NVIDIA DGX-1 with Tesla V100 system architecture white paper, 2017; pairs: nvidia-smi topo -m",
            gpus_per_switch=2,
            pairs=tuple(_CUBE_MESH.items()),
            pair_link=LINKS["NVLink2"],
            network=LINKS["InfiniBand-EDR"],
            adapters=4,
        ),
        Machine(
            "DGX-A100",
            "2020-11",
            GPUS["A100-SXM4-80GB"],
            8,
            LINKS["PCIe4-x16"],
            "NVIDIA DGX A100 system architecture white paper, 2020: NVSwitch; two GPUs and two adapters of 200 Gbit/s "
            "behind each PCIe switch; 80 GB: NVIDIA DGX A100 data sheet, 2020",
            gpus_per_switch=2,
            port=_port(3),
            network=LINKS["InfiniBand-HDR"],
            adapters=8,
        ),
        Machine(
            "DGX-H100",
            "2022-03",
            GPUS["H100-SXM5-80GB"],
            8,
            LINKS["PCIe5-x16"],
            "NVIDIA DGX H100 data sheet, 2022: eight adapters of 400 Gbit/s; NVSwitch with SHARP: NVIDIA H100 white "
            "paper, 2022",
            port=_port(4),
            network=LINKS["InfiniBand-NDR"],
            adapters=8,
            sharp=True,
        ),
        Machine(
            "8xH200",
            "2023-11",
            GPUS["H200-SXM5-141GB"],
            8,
            LINKS["PCIe5-x16"],
            "NVIDIA HGX and DGX H200 data sheets: NVSwitch, eight adapters of 400 Gbit/s",
            port=_port(4),
            network=LINKS["InfiniBand-NDR"],
            adapters=8,
            sharp=True,
        ),
        Machine(
            "8xB200",
            "2024-03",
            GPUS["B200-SXM-180GB"],
            8,
            LINKS["PCIe5-x16"],
            "NVIDIA DGX B200 data sheet, 2024: NVSwitch, eight adapters of 400 Gbit/s",
            port=_port(5),
            network=LINKS["InfiniBand-NDR"],
            adapters=8,
            sharp=True,
        ),
        Machine(
            "p4d.24xlarge",
            "2020-11",
            GPUS["A100-SXM4-40GB"],
            8,
            LINKS["PCIe4-x16"],
            "Amazon EC2 user guide, accelerated computing instances: NVSwitch, four adapters of 100 Gbit/s",
            gpus_per_switch=2,
            port=_port(3),
            network=LINKS["EFA-100G"],
            adapters=4,
        ),
        Machine(
            "p5.48xlarge",
            "2023-07",
            GPUS["H100-SXM5-80GB"],
            8,
            LINKS["PCIe5-x16"],
            "Amazon EC2 user guide, accelerated computing instances: NVSwitch, 32 adapters of 100 Gbit/s, four for "
            "each GPU: aws-ofi-nccl, src/tuner",
            port=_port(4),
            network=LINKS["EFA-100G"].times(4),
            adapters=8,
            sharp=True,
        ),
    )
}


def cluster(node: Machine, nodes: int) -> Cluster:
    """Return several equal machines joined by the network that their adapters are made for.

    Args:
        node: The machine, with network adapters.
        nodes: How many of it, at least 1.

    Raises:
        ValueError: `nodes` is no whole number from 1 on, or the machine has no network adapter.

    >>> cluster = hardware.cluster(hardware.MACHINES["DGX-H100"], 4)
    >>> cluster.name, cluster.count
    ('4 × DGX-H100', 32)
    """
    nodes = whole("the number of a cluster's nodes", nodes, 1)
    if not node.adapters:
        raise ValueError(f"{node.name} has no network adapter, so it cannot be part of a cluster")
    one = vars(node) | {"name": f"{nodes} × {node.name}", "count": node.count * nodes}
    return Cluster(**one, node=node, nodes=nodes)
