"""Which wires a copy between two places of a machine occupies: machines and clusters.

A wire carries bytes in ONE direction and serves one copy at a time; a route is a list of hops, one after the other, and
a hop occupies all its wires at once. Without peer-to-peer access a copy between GPUs is two hops, through the host, in
chunks as drivers do it.

A cluster is several equal machines joined by a network: node 0 has the first GPUs, node 1 the next. A GPU hands its
bytes to its node's adapter and the network brings them into the other GPU's memory (GPUDirect RDMA), without a stop in
a host's memory. GPUs that share an adapter wait for one another there; the network between adapters never holds
anything up.
"""

from dataclasses import dataclass, replace

from simgpu.hardware.gpus import GPU
from simgpu.hardware.links import Link


@dataclass(frozen=True)
class Hop:
    """One leg of a copy: the `wires` it occupies, by name, and the `link` that sets its speed."""

    wires: tuple[str, ...]
    link: Link


@dataclass(frozen=True)
class Machine:
    """One computer with `count` equal GPUs.

    Attributes:
        name: The key in `MACHINES`, or what `build` calls it.
        released: When it was first sold, YYYY or YYYY-MM.
        gpu: What each of its GPUs is.
        count: The number of GPUs.
        host_link: Between each GPU and the host.
        source: The documents that the figures are from.
        gpus_per_switch: How many GPUs share one such link to the host.
        peer_over_host_link: Whether a GPU reaches another's memory over that bus without a stop in the host's memory.
        pairs: Machines wired GPU to GPU: ((i, j), number of `pair_link`s between the two) with i < j.
        pair_link: One link of those wires; None for other machines.
        port: What connects each GPU to a switch that reaches every other GPU at full speed; None without a switch.
        network: One adapter to other machines; None without.
        adapters: The number of such adapters.
        sharp: Whether the switch adds up what it carries (NVLink SHARP).
    """

    name: str
    released: str
    gpu: GPU
    count: int
    host_link: Link
    source: str
    gpus_per_switch: int = 1
    peer_over_host_link: bool = False
    pairs: tuple[tuple[tuple[int, int], int], ...] = ()
    pair_link: Link | None = None
    port: Link | None = None
    network: Link | None = None
    adapters: int = 0
    sharp: bool = False

    def route(self, src: int | None, dst: int | None) -> tuple[Hop, ...]:
        """Return the hops of a copy, one after the other.

        Args:
            src: The GPU's index at the beginning; None for the host.
            dst: The GPU's index at the end; None for the host.

        Raises:
            ValueError: An index is out of range, or both ends are the same.
        """
        for end in (src, dst):
            if end is not None and not 0 <= end < self.count:
                raise ValueError(f"{self.name} has GPUs 0 to {self.count - 1}, got index {end}")
        if src is not None and dst is not None and src != dst:
            return self._between(src, dst)
        if src is not None and dst is None:
            return (Hop(self._to_host(src, "out"), self.host_link),)
        if dst is not None and src is None:
            return (Hop(self._to_host(dst, "in"), self.host_link),)
        raise ValueError(f"a route needs two different ends, got {src!r} twice")

    def peer(self, src: int, dst: int) -> bool:
        """Return whether GPU `src` can send to GPU `dst` without the host's memory in between."""
        return len(self.route(src, dst)) == 1

    def _between(self, src: int, dst: int) -> tuple[Hop, ...]:
        links = dict(self.pairs).get((min(src, dst), max(src, dst)), 0)
        if links and self.pair_link:
            return (Hop((f"NVLink gpu{src}→gpu{dst}",), self.pair_link.times(links)),)
        if self.port:
            return (Hop((f"NVLink gpu{src} out", f"NVLink gpu{dst} in"), self.port),)
        if self.peer_over_host_link:
            out, into = self._to_host(src, "out"), self._to_host(dst, "in")
            if src // self.gpus_per_switch == dst // self.gpus_per_switch:
                out, into = out[:1], into[:1]
            return (Hop(out + into, self.host_link),)
        return self.route(src, None) + self.route(None, dst)

    def _to_host(self, gpu: int, direction: str) -> tuple[str, ...]:
        own, shared = f"PCIe gpu{gpu} {direction}", f"PCIe switch{gpu // self.gpus_per_switch} {direction}"
        return (own, shared) if self.gpus_per_switch > 1 else (own,)


@dataclass(frozen=True, kw_only=True)
class Cluster(Machine):
    """`nodes` machines like `node`, joined by a network; made by `cluster`. GPUs are numbered node after node."""

    node: Machine
    nodes: int

    def _between(self, src: int, dst: int) -> tuple[Hop, ...]:
        (a, i), (b, j) = divmod(src, self.node.count), divmod(dst, self.node.count)
        if a == b:
            return _inside(a, self.node.route(i, j))
        out, into = f"adapter{self._adapter(i)} out", f"adapter{self._adapter(j)} in"
        assert self.network is not None  # as `cluster` has seen to
        return (Hop((f"node{a} {out}", f"node{b} {into}"), self.network),)

    def route(self, src: int | None, dst: int | None) -> tuple[Hop, ...]:
        """Return the hops of a copy, as `Machine.route`; None is the host of the other end's node."""
        gpu = dst if src is None else src
        if gpu is None or (src is not None and dst is not None):
            return super().route(src, dst)
        number, place = divmod(gpu, self.node.count)
        return _inside(number, self.node.route(None, place) if src is None else self.node.route(place, None))

    def _adapter(self, gpu: int) -> int:
        return gpu * self.adapters // self.node.count


def _inside(number: int, hops: tuple[Hop, ...]) -> tuple[Hop, ...]:
    return tuple(replace(hop, wires=tuple(f"node{number} {wire}" for wire in hop.wires)) for hop in hops)
