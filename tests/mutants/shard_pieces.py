"""Wrong answers to the exercise shard-pieces, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("shards are rounded down", "-(-sum(sizes) // ranks)", "sum(sizes) // ranks"),
    ("each parameter is cut by itself", "each = -(-sum(sizes) // ranks)", "each = -(-max(sizes) // ranks)"),
    ("places in the whole row in place of the parameter's own", "(i, start - first, stop - first)", "(i, start, stop)"),
    ("the last number of a shard is left out", "min((rank + 1) * each,", "min((rank + 1) * each - 1,"),
    ("pieces without numbers are kept", "if start < stop:", "if start <= stop:"),
    ("parameters are not counted on", "first += size", "first = size"),
    ("all ranks have the first shard", "max(rank * each, first)", "max(0, first)"),
    ("a shard ends where its first parameter does", "min((rank + 1) * each, first + size)", "first + size"),
    ("nothing is returned", "return pieces", "pieces"),
]


def shard_pieces(sizes, ranks, rank):
    """Whole parameters are dealt out."""
    return [(i, 0, size) for i, size in enumerate(sizes) if i % ranks == rank]


def shard_pieces(sizes, ranks, rank):
    """The last rank takes what is left."""
    each, pieces, first = sum(sizes) // ranks, [], 0
    end = sum(sizes) if rank == ranks - 1 else (rank + 1) * each
    for i, size in enumerate(sizes):
        start, stop = max(rank * each, first), min(end, first + size)
        if start < stop:
            pieces.append((i, start - first, stop - first))
        first += size
    return pieces
