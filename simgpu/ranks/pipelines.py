"""The order in which zero-bubble schedules add up a stage's gradients, which torch leaves to the addresses of nodes.

torch keeps parameters, and the nodes of a graph that lead to them, in sets. Which gradient is added first, and so when
each is done, would be others in every run.
"""

from itertools import chain

from torch.distributed.pipelining import _backward


class Nodes(dict):
    """Nodes of a graph in the order in which they were met, with as much of a set as torch uses."""

    def __init__(self, nodes):
        super().__init__(dict.fromkeys(nodes))

    def union(self, others):
        """Return these nodes, and then those of the others that are not among them."""
        return Nodes([*self, *others])


def closure(roots, targets, edges):
    """As torch's ``reverse_closure``, with the targets that it met in the order of the graph."""
    found, met = _closure(roots, targets, edges)
    return found, Nodes(node for node in chain(*edges.values()) if node in met)


def groups(inputs, parameters, edges):
    """As torch's ``get_param_groups``, with the parameters of each group in the order in which they were given."""
    found = _groups(inputs, parameters, edges)
    for group in found:
        group["params"] = [node for node in parameters if node in group["params"]]
    return found


_closure, _groups = _backward.reverse_closure, _backward.get_param_groups
