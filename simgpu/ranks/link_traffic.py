"""Which links a library's collective takes, by the algorithm that carries it: messages as (from, to, bytes).

    ring      around all rings of the group at once; a broadcast or reduce leaves out the edge to or from its root
    tree      two trees over the nodes, each with half the bytes, and a chain inside each node: up, then down again
    sharp     a rank's buffer to the switch, which adds, and a P-th of it again; the nodes' sums in trees like those
    direct    straight from rank to rank

Over a switch a message to "the next" rank stands for one to the switch: it takes the same two wires. What a rank hands
on in all is P − 1 shares of 1/P, twice that in an all_reduce.
"""

from collections import defaultdict
from itertools import pairwise

from simgpu.hardware.rings import group


def cuts(n, weights):
    """Return whole parts of n things in the proportions of `weights`, which add up to n."""
    total, ends, sofar = sum(weights), [0], 0
    for weight in weights:
        sofar += weight
        ends.append(round(n * sofar / total))
    return [b - a for a, b in pairwise(ends)]


def sends(algorithm, name, machine, gpus, nbytes, root=0):
    """Return the messages of one collective.

    Args:
        algorithm, name: As `hardware.collective_costs` names them.
        machine: Whose links carry them.
        gpus: The numbers of the GPUs that take part, a tuple.
        nbytes: Bytes of the whole buffer; of an alltoall a table, what each place sends to each.
        root: The root's place in `gpus`.
    """
    if algorithm == "none":
        return []
    if algorithm == "direct":
        return list(_direct(name, gpus, nbytes, root))
    ranks = group(machine, gpus)
    share = dict(zip(gpus, cuts(nbytes, [1] * len(gpus)), strict=True))
    if algorithm == "tree":
        return list(_trees([_heads(ranks, rail) for rail in range(ranks.rails)], nbytes))
    if algorithm == "sharp":
        inside = [(a, b, part) for a, b, part in ranks.flows if any(a in gpus and b in gpus for gpus in ranks.parts)]
        added = _spread(inside, {gpu: nbytes + share[gpu] for gpu in gpus})
        return [*added, *(_trees([_heads(ranks, i, 1) for i in range(len(ranks.parts[0]))], nbytes))]
    if name in ("broadcast", "reduce"):
        return _chain(name, ranks, nbytes, gpus[root])
    rounds = (2 if name == "all_reduce" else 1) * (len(gpus) - 1)
    return _spread(ranks.flows, {gpu: rounds * share[gpu] for gpu in gpus})


def _spread(flows, out):
    """Return flows, (from, to, share), as messages of which a GPU sends `out` bytes in all."""
    ways = defaultdict(list)
    for src, dst, share in flows:
        if share:
            ways[src].append((dst, share))
    return [
        (src, dst, part)
        for src, found in ways.items()
        for (dst, _), part in zip(found, cuts(out[src], [share for _, share in found]), strict=True)
    ]


def _chain(name, ranks, nbytes, root):
    """In a reduce all but the root send everything on; a broadcast goes the same ways in the other direction."""
    passed = {gpu: nbytes * (gpu != root) for part in ranks.parts for gpu in part}
    if name == "reduce":
        return _spread(ranks.flows, passed)
    return [(dst, src, part) for src, dst, part in _spread([(b, a, share) for a, b, share in ranks.flows], passed)]


def _direct(name, gpus, nbytes, root):
    if name == "alltoall":
        yield from ((a, b, nbytes[i][j]) for i, a in enumerate(gpus) for j, b in enumerate(gpus) if i != j)
        return
    for gpu, part in zip(gpus, cuts(nbytes, [1] * len(gpus)), strict=True):
        if gpu != gpus[root]:
            yield (gpu, gpus[root], part) if name == "gather" else (gpus[root], gpu, part)


def _heads(ranks, first, most=None):
    """Return each node's GPUs as a chain that begins at its GPU number `first`, or only so many of them."""
    turned = [[*part[first % len(part) :], *part[: first % len(part)]] for part in ranks.parts]
    return [part[:most] for part in turned]


def _trees(rails, nbytes):
    """Yield the messages of trees up and down, half of a rail's bytes in one tree, half in its mirror image."""
    parts = cuts(nbytes, [1] * (2 * len(rails)))
    for number, part in enumerate(parts):
        chains = rails[number // 2][:: -1 if number % 2 else 1]
        edges = [edge for chain in chains for edge in pairwise(chain)]
        edges += [(chains[(i - 1) // 2][0], chains[i][0]) for i in range(1, len(chains))]
        for a, b in edges:
            yield from ((a, b, part), (b, a, part))
