EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("a plain third of the weight", "part * width + row", "row * 3 + part"),
    ("only q", "range(3)", "range(1)"),
    ("q and k, no v", "range(3)", "range(2)"),
    ("all ranks have the first heads", "rank * each, (rank + 1) * each", "0, each"),
    ("ranks that do not divide the heads are accepted", "if heads % ranks:", "if False:"),
    ("it is enough that the ranks divide the rows", "if heads % ranks:", "if heads * head_width % ranks:"),
    ("it is enough that the ranks divide all heads", "if heads % ranks:", "if 3 * heads % ranks:"),
]


def qkv_rows(heads, head_width, ranks, rank):
    """The weight is cut as any other: the first ranks have q, the last have v."""
    if heads % ranks:
        raise ValueError(f"{heads} heads on {ranks} ranks")
    each = 3 * heads * head_width // ranks
    return list(range(rank * each, (rank + 1) * each))
