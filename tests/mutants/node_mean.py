EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum, not the mean", "    mine /= dist.get_world_size()\n", ""),
    ("the mean of the node's ranks alone", "    dist.all_reduce(mine, group=across)\n", ""),
    ("divided by the ranks of a node", "dist.get_world_size()", "size"),
    (
        "numbers that are left over are not reduced",
        "x.new_zeros(-len(x) % size)",
        "x.new_zeros(size - len(x) % size)[:0]",
    ),
    (
        "each GPU sends a half",
        "mine /= dist.get_world_size()",
        "mine /= dist.get_world_size()\n    dist.all_reduce(flat)",
    ),
    (
        "single precision between nodes",
        "dist.all_reduce(mine, group=across)",
        "half = mine.float()\n    dist.all_reduce(half, group=across)\n    mine.copy_(half)",
    ),
    (
        "16-bit numbers between nodes",
        "dist.all_reduce(mine, group=across)",
        "half = mine.half()\n    dist.all_reduce(half, group=across)\n    mine.copy_(half)",
    ),
    (
        "the node's groups for those across",
        "dist.all_reduce(mine, group=across)",
        "dist.all_reduce(mine, group=inside)",
    ),
    ("the result does not reach x", "x.copy_(torch.cat(parts)[: len(x)])", "x = torch.cat(parts)[: len(x)]"),
]


def node_mean(x, inside, across):
    """All numbers of every GPU cross the network."""
    dist.all_reduce(x, group=across)
    dist.all_reduce(x, group=inside)
    x /= dist.get_world_size()


def node_mean(x, inside, across):
    """Every rank gathers from all."""
    everybodys = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, x)
    x.copy_(torch.stack(everybodys).mean(0))
