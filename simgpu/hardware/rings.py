"""How fast the links of a machine let its GPUs pass bytes around: what a collective's rings and messages can use.

A ring can go along any links, and as many rings go side by side as there are links: over a switch every GPU's whole
port works, over several nodes all adapters that the group's GPUs have on every node. On a machine wired GPU to GPU the
GPU with the fewest links sets the pace; where no ring follows the links, all goes over the bus to the host. Of nodes
that have different shares of a group, the slowest sets the pace of all.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from simgpu.hardware.machines import Cluster, Machine
from simgpu.hardware.op_costs import payload_bytes_per_s


@dataclass(frozen=True)
class Group:
    """Some GPUs of a machine, as a collective sees them.

    machine: whose links its rings take. parts: the GPUs of each node, in the order of a ring inside it. rails: how many
    rings go side by side from node to node. inside: "NVLink" or "PCIe", what rings inside a node follow.
    node_bytes_per_s: their rate there, one direction, infinite where no node has two of the GPUs; network_bytes_per_s:
    that of all rails together, None for one node. flows: the rings as (from, to, share), of the bytes that a
    GPU sends in all.
    """

    machine: Machine
    parts: tuple
    rails: int
    inside: str
    node_bytes_per_s: float
    network_bytes_per_s: float | None
    flows: tuple

    @property
    def gpus(self):
        """The number of GPUs."""
        return sum(map(len, self.parts))

    @property
    def nodes(self):
        """The number of nodes."""
        return len(self.parts)

    @property
    def bytes_per_s(self):
        """The rate of rings through the whole group."""
        return min(self.node_bytes_per_s, self.network_bytes_per_s or self.node_bytes_per_s)


@lru_cache(maxsize=1024)
def group(machine, gpus):
    """Return the `Group` of `gpus`: a tuple of their numbers on the machine, or how many of the first ones."""
    each, node = (machine.node.count, machine.node) if isinstance(machine, Cluster) else (machine.count, machine)
    parts = defaultdict(list)
    for gpu in sorted(range(gpus) if isinstance(gpus, int) else gpus):
        parts[gpu // each].append(gpu)
    rings = [_ring(_links(node, part, each), part[:1]) for part in parts.values()]
    if node.pairs and not all(rings):
        node = replace(node, pairs=())
        machine = replace(machine, node=node, pairs=()) if isinstance(machine, Cluster) else node
    parts = [ring or part for ring, part in zip(rings, parts.values(), strict=True)]
    exits = [_exits(machine, part) for part in parts]
    rails = min(map(len, exits))
    inside = [flow for part in parts for flow in _inside(node, part, each)]
    across = _across(parts, exits, rails) if len(parts) > 1 else []
    leaving = {gpu: share for gpu, _, share in across}  # where a rail leaves the node, its ring takes no link inside
    flows = [(src, dst, share * (1 - leaving.get(src, 0))) for src, dst, share in inside]
    kind = "NVLink" if node.port or node.pairs else "PCIe"
    return Group(
        machine,
        tuple(map(tuple, parts)),
        rails,
        kind,
        _rate(machine, inside),
        _rate(machine, across) if across else None,
        (*flows, *across),
    )


def _links(node, part, each):
    """Return for each GPU of a part {another one: links between the two}; empty for a node with a switch or a bus."""
    found = {gpu: {} for gpu in part}
    first = part[0] - part[0] % each
    for (a, b), count in node.pairs:
        if a + first in found and b + first in found:
            found[a + first][b + first] = found[b + first][a + first] = count
    return found


def _ring(links, path):
    """Return `path` led on along the links, once through every GPU and back to its start; None where no ring does."""
    if len(path) == len(links):
        return path if len(links) == 1 or path[0] in links[path[-1]] else None
    rings = (_ring(links, [*path, b]) for b in links[path[-1]] if b not in path)
    return next((ring for ring in rings if ring), None)


def _exits(machine, part):
    """Return the first GPU of a part at each network adapter of its node."""
    if not isinstance(machine, Cluster):
        return part[:1]
    adapters = {}
    for gpu in part:
        adapters.setdefault(gpu % machine.node.count * machine.adapters // machine.node.count, gpu)
    return list(adapters.values())


def _inside(node, part, each):
    """Yield the rings of one node: to the next GPU or, wired GPU to GPU, over all links evenly."""
    links = _links(node, part, each) if node.pairs else {a: {b: 1} for a, b in pairwise([*part, part[0]]) if a != b}
    for src, found in links.items():
        yield from ((src, dst, count / sum(found.values())) for dst, count in found.items())


def _across(parts, exits, rails):
    """Return what goes from node to node: out at a rail's exit, in at the GPU that is next to it in the ring."""
    found = []
    for a, b in zip(range(len(parts)), [*range(1, len(parts)), 0]):
        enters = [parts[b][(parts[b].index(gpu) + 1) % len(parts[b])] for gpu in exits[b][:rails]]
        found += [(src, dst, 1 / rails) for src, dst in zip(exits[a][:rails], enters, strict=True)]
    return found


def _rate(machine, flows):
    return 1 / _busiest(machine, flows) if flows else float("inf")


@lru_cache(maxsize=256)
def busiest_seconds_per_byte(machine, gpus, root=None):
    """Return the seconds for which the busiest wire is taken, for each byte of a rank's buffer, in an all-to-all.

    gpus: a tuple of numbers. root: the place in it of the one GPU that all send to, in a gather.
    """
    pairs = [(src, dst, 1 / len(gpus)) for src in gpus for dst in gpus if src != dst]
    return _busiest(machine, [pair for pair in pairs if root is None or pair[1] == gpus[root]])


def _busiest(machine, flows):
    taken = Counter()
    for src, dst, share in flows:
        for hop in machine.route(src, dst):
            for wire in hop.wires:
                taken[wire] += share / payload_bytes_per_s(hop.link)
    return max(taken.values())
