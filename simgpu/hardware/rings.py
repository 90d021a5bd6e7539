"""How fast the links of a machine let its GPUs pass bytes around: what a collective's rings and messages can use.

A ring can go along any links, and as many rings go side by side as there are links: over a switch every GPU's whole
port works, over several nodes all adapters that the group's GPUs have on every node. On a machine wired GPU to GPU the
GPU with the fewest links sets the pace; where no ring follows the links, all goes over the bus to the host. Of nodes
that have different shares of a group, the slowest sets the pace of all.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from simgpu.hardware.op_costs import payload_bytes_per_s
from simgpu.hardware.topology import Cluster, Machine

Flow = tuple[int, int, float]  # from a GPU to another, which share of the bytes


@dataclass(frozen=True)
class Group:
    """Some GPUs of a machine, as a collective sees them.

    Attributes:
        machine: The one whose links the rings take.
        parts: The GPUs of each node, in the order of a ring inside it.
        rails: How many rings go side by side from node to node.
        inside: "NVLink" or "PCIe": what rings inside a node follow.
        node_bytes_per_s: Their rate there in one direction; infinite where no node has two of the GPUs.
        network_bytes_per_s: The rate of all rails together; infinite for one node.
        flows: The rings as (from, to, share of the bytes that a GPU sends in all).
    """

    machine: Machine
    parts: tuple[tuple[int, ...], ...]
    rails: int
    inside: str
    node_bytes_per_s: float
    network_bytes_per_s: float
    flows: tuple[Flow, ...]

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return sum(map(len, self.parts))

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.parts)

    @property
    def bytes_per_s(self) -> float:
        """The rate of rings through the whole group."""
        return min(self.node_bytes_per_s, self.network_bytes_per_s)


@lru_cache(maxsize=1024)
def group(machine: Machine, gpus: int | tuple[int, ...]) -> Group:
    """Return some GPUs of a machine as a `Group`.

    Args:
        machine: The machine or cluster.
        gpus: The GPUs' numbers there, or how many of the first ones.
    """
    each, node = (machine.node.count, machine.node) if isinstance(machine, Cluster) else (machine.count, machine)
    by_node: dict[int, list[int]] = defaultdict(list)
    for gpu in sorted(range(gpus) if isinstance(gpus, int) else gpus):
        by_node[gpu // each].append(gpu)
    rings = [_ring(_links(node, part, each), part[:1]) for part in by_node.values()]
    if node.pairs and not all(rings):
        node = replace(node, pairs=())
        machine = replace(machine, node=node, pairs=()) if isinstance(machine, Cluster) else node
    parts = [ring or part for ring, part in zip(rings, by_node.values(), strict=True)]
    exits = [_exits(machine, part) for part in parts]
    rails = min(map(len, exits))
    inside = [flow for part in parts for flow in _inside(node, part, each)]
    across = _across(parts, exits, rails) if len(parts) > 1 else []
    leaving = {gpu: share for gpu, _, share in across}  # where a rail leaves the node, its ring takes no link inside
    flows: list[Flow] = [(src, dst, share * (1 - leaving.get(src, 0))) for src, dst, share in inside]
    kind = "NVLink" if node.port or node.pairs else "PCIe"
    return Group(
        machine,
        tuple(map(tuple, parts)),
        rails,
        kind,
        _rate(machine, inside),
        _rate(machine, across),
        (*flows, *across),
    )


def _links(node: Machine, part: list[int], each: int) -> dict[int, dict[int, int]]:
    """Return for each GPU of a part {another one: links between the two}; empty for a node with a switch or a bus."""
    found: dict[int, dict[int, int]] = {gpu: {} for gpu in part}
    first = part[0] - part[0] % each
    for (a, b), count in node.pairs:
        if a + first in found and b + first in found:
            found[a + first][b + first] = found[b + first][a + first] = count
    return found


def _ring(links: dict[int, dict[int, int]], path: list[int]) -> list[int] | None:
    """Return `path` led on along the links, once through every GPU and back to its start; None where no ring does."""
    if len(path) == len(links):
        return path if len(links) == 1 or path[0] in links[path[-1]] else None
    rings = (_ring(links, [*path, b]) for b in links[path[-1]] if b not in path)
    return next((ring for ring in rings if ring), None)


def _exits(machine: Machine, part: list[int]) -> list[int]:
    """Return the first GPU of a part at each network adapter of its node."""
    if not isinstance(machine, Cluster):
        return part[:1]
    adapters: dict[int, int] = {}
    for gpu in part:
        adapters.setdefault(gpu % machine.node.count * machine.adapters // machine.node.count, gpu)
    return list(adapters.values())


def _inside(node: Machine, part: list[int], each: int) -> Iterator[Flow]:
    """Yield the rings of one node: to the next GPU or, wired GPU to GPU, over all links evenly."""
    links = _links(node, part, each) if node.pairs else {a: {b: 1} for a, b in pairwise([*part, part[0]]) if a != b}
    for src, found in links.items():
        yield from ((src, dst, count / sum(found.values())) for dst, count in found.items())


def _across(parts: list[list[int]], exits: list[list[int]], rails: int) -> list[Flow]:
    """Return what goes from node to node: out at a rail's exit, in at the GPU that is next to it in the ring."""
    found: list[Flow] = []
    for a, b in zip(range(len(parts)), [*range(1, len(parts)), 0]):
        enters = [parts[b][(parts[b].index(gpu) + 1) % len(parts[b])] for gpu in exits[b][:rails]]
        found += [(src, dst, 1 / rails) for src, dst in zip(exits[a][:rails], enters, strict=True)]
    return found


def _rate(machine: Machine, flows: list[Flow]) -> float:
    return 1 / _busiest(machine, flows) if flows else float("inf")


@lru_cache(maxsize=256)
def busiest_seconds_per_byte(machine: Machine, gpus: tuple[int, ...], root: int | None = None) -> float:
    """Return the seconds for which the busiest wire is taken, for each byte of a rank's buffer, in an all-to-all.

    Args:
        machine: The machine or cluster.
        gpus: The ranks' GPUs, as numbers there.
        root: The place in `gpus` of the one that all send to, in a gather; None for an all-to-all.
    """
    pairs = [(src, dst, 1 / len(gpus)) for src in gpus for dst in gpus if src != dst]
    return _busiest(machine, [pair for pair in pairs if root is None or pair[1] == gpus[root]])


def _busiest(machine: Machine, flows: list[Flow]) -> float:
    taken: dict[str, float] = defaultdict(float)
    for src, dst, share in flows:
        for hop in machine.route(src, dst):
            for wire in hop.wires:
                taken[wire] += share / payload_bytes_per_s(hop.link)
    return max(taken.values())
