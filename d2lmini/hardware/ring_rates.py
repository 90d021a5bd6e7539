"""How fast the links of a machine let its GPUs pass bytes around: what a collective's rings and messages can use.

A ring can go along any links, and as many rings go side by side as there are links: over a switch every GPU's whole
port works, over several nodes all their adapters. On a machine wired GPU to GPU the GPU with the fewest links sets the
pace; where no ring follows the links, all goes over the bus to the host.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from d2lmini.hardware.costs import payload_bytes_per_s
from d2lmini.hardware.gpus import GPU
from d2lmini.hardware.machines import Cluster


@dataclass(frozen=True)
class Group:
    """The first `gpus` GPUs of a machine, on `nodes` nodes, as a collective sees them.

    inside: "NVLink" or "PCIe", what rings inside a node follow. node_bytes_per_s: their rate there, one direction;
    network_bytes_per_s: that of all adapters of a node together, None for one node. sharp: whether the switch adds.
    """

    gpu: GPU
    gpus: int
    nodes: int
    inside: str
    node_bytes_per_s: float
    network_bytes_per_s: float | None
    sharp: bool

    @property
    def bytes_per_s(self):
        """The rate of rings through the whole group."""
        return min(self.node_bytes_per_s, self.network_bytes_per_s or self.node_bytes_per_s)


@lru_cache(maxsize=256)
def group(machine, gpus):
    """Return the `Group` of GPUs 0 to gpus − 1; raises ValueError where they fill only part of a cluster's node."""
    node, nodes = machine, 1
    if isinstance(machine, Cluster):
        node = machine.node
        nodes = -(-gpus // node.count)
        if nodes > 1 and gpus % node.count:
            raise ValueError(f"expected whole nodes of {node.count} GPUs, got {gpus} GPUs of {machine.name}")
    inside, rate = _node(node, gpus // nodes)
    network = node.adapters * payload_bytes_per_s(node.network) if nodes > 1 else None
    return Group(machine.gpu, gpus, nodes, inside, rate, network, node.sharp)


def _node(machine, gpus):
    """Return what rings over GPUs 0 to gpus − 1 of one node follow, and their rate in bytes a second."""
    if machine.pairs:
        links = [{b if a == gpu else a: n for (a, b), n in machine.pairs if gpu in (a, b)} for gpu in range(gpus)]
        if _ring_exists(links, [0]):
            least = min(sum(n for other, n in found.items() if other < gpus) for found in links)
            return "NVLink", least * payload_bytes_per_s(machine.pair_link)
        machine = replace(machine, pairs=())
    around = [(gpu, (gpu + 1) % gpus) for gpu in range(gpus)] if gpus > 1 else []
    rate = 1 / _busiest(machine, around) if around else payload_bytes_per_s(machine.port or machine.host_link)
    return "NVLink" if machine.port else "PCIe", rate


def _ring_exists(links, path):
    """Return whether `path` can be led on along the links, once through every GPU and back to its start."""
    if len(path) == len(links):
        return len(links) == 1 or path[0] in links[path[-1]]
    return any(_ring_exists(links, [*path, b]) for b in links[path[-1]] if b < len(links) and b not in path)


@lru_cache(maxsize=256)
def busiest_seconds_per_byte(machine, gpus):
    """Return the seconds for which the busiest wire is taken, for each byte of a rank's buffer, in an all-to-all."""
    pairs = [(src, dst) for src in range(gpus) for dst in range(gpus) if src != dst]
    return _busiest(machine, pairs) / gpus


def _busiest(machine, pairs):
    taken = Counter()
    for src, dst in pairs:
        for hop in machine.route(src, dst):
            for wire in hop.wires:
                taken[wire] += 1 / payload_bytes_per_s(hop.link)
    return max(taken.values())
