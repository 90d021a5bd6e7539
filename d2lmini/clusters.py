"""Several equal machines joined by a network, as one `machines.Machine`: node 0 has the first GPUs, node 1 the next.

A GPU hands its bytes to its node's adapter and the network brings them into the other GPU's memory (GPUDirect RDMA),
without a stop in a host's memory. GPUs that share an adapter wait for one another there; the network between adapters
never holds anything up.
"""

from dataclasses import dataclass, fields, replace

from d2lmini.machines import Hop, Machine


@dataclass(frozen=True, kw_only=True)
class Cluster(Machine):
    """`nodes` machines like `node`; see `cluster`, which makes one."""

    node: Machine
    nodes: int

    def _between(self, src, dst):
        (a, i), (b, j) = divmod(src, self.node.count), divmod(dst, self.node.count)
        if a == b:
            return _inside(a, self.node.route(i, j))
        out, into = f"adapter{self._adapter(i)} out", f"adapter{self._adapter(j)} in"
        return (Hop((f"node{a} {out}", f"node{b} {into}"), self.network),)

    def route(self, src, dst):
        """Return the hops from `src` to `dst`, each a GPU's number in the cluster or None for its own node's host."""
        if src is None or dst is None:
            number, gpu = divmod(dst if src is None else src, self.node.count)
            hops = self.node.route(None, gpu) if src is None else self.node.route(gpu, None)
            return _inside(number, hops)
        return super().route(src, dst)

    def _adapter(self, gpu):
        return gpu * self.adapters // self.node.count


def cluster(node, nodes):
    """Return `nodes` machines like `node`, joined by the network that its adapters are made for.

    Raises ValueError for fewer than one node, and for a machine without a network adapter.
    """
    if nodes < 1:
        raise ValueError(f"a cluster needs at least 1 node, got {nodes}")
    if not node.adapters:
        raise ValueError(f"{node.name} has no network adapter, so it cannot be part of a cluster")
    one = {field.name: getattr(node, field.name) for field in fields(Machine)}
    one |= {"name": f"{nodes} × {node.name}", "count": node.count * nodes}
    return Cluster(**one, node=node, nodes=nodes)


def _inside(number, hops):
    return tuple(replace(hop, wires=tuple(f"node{number} {wire}" for wire in hop.wires)) for hop in hops)
