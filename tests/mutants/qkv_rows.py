"""Wrong answers to the exercise qkv-rows, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("a plain third of the weight", "part * width + row", "row * 3 + part"),
    ("only q", "range(3)", "range(1)"),
    ("q and k, no v", "range(3)", "range(2)"),
    ("all ranks have the first heads", "rank * each, (rank + 1) * each", "0, each"),
    ("one row too many", "(rank + 1) * each", "(rank + 1) * each + 1"),
    ("k and v as if they began where the rank's q ends", "part * width", "part * each"),
    ("ranks that do not divide the heads are accepted", "if heads % ranks:", "if False:"),
    ("the width of a head is left out", "each, width = heads // ranks * head_width,", "each, width = heads // ranks,"),
]


def qkv_rows(heads, head_width, ranks, rank):
    """The weight is cut as any other: the first ranks have q, the last have v."""
    if heads % ranks:
        raise ValueError(f"{heads} heads on {ranks} ranks")
    each = 3 * heads * head_width // ranks
    return list(range(rank * each, (rank + 1) * each))


def qkv_rows(heads, head_width, ranks, rank):
    """Head by head: q, k, v of the first head, then of the second."""
    if heads % ranks:
        raise ValueError(f"{heads} heads on {ranks} ranks")
    mine = range(rank * heads // ranks, (rank + 1) * heads // ranks)
    return [(part * heads + head) * head_width + i for head in mine for part in range(3) for i in range(head_width)]


def qkv_rows(heads, head_width, ranks, rank):
    """Every second head."""
    if heads % ranks:
        raise ValueError(f"{heads} heads on {ranks} ranks")
    mine = range(rank, heads, ranks)
    return [(part * heads + head) * head_width + i for part in range(3) for head in mine for i in range(head_width)]
