EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("shards are rounded down", "-(-sum(sizes) // ranks)", "sum(sizes) // ranks"),
    ("each parameter is cut by itself", "each = -(-sum(sizes) // ranks)", "each = -(-max(sizes) // ranks)"),
    ("pieces without numbers are kept", "if start < stop:", "if start <= stop:"),
    ("a shard ends where its first parameter does", "min((rank + 1) * each, first + size)", "first + size"),
    ("nothing is returned", "return pieces", "pieces"),
]


def shard_pieces(sizes, ranks, rank):
    """Whole parameters are dealt out."""
    return [(i, 0, size) for i, size in enumerate(sizes) if i % ranks == rank]
