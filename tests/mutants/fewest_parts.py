EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the whole card", "if peak_of(middle) <= 0.9 * memory", "if peak_of(middle) <= memory"),
    ("one too few", "    return low", "    return low - 1"),
    ("a number where none is enough", "return None", "return rows"),
    ("powers of two alone", "middle = (low + high) // 2", "middle = low if low == 1 else 2 * low"),
    ("nothing is returned", "    return low", "    low"),
]


def fewest_parts(peak_of, rows, memory):
    """Every number is tried."""
    for parts in range(1, rows + 1):
        if peak_of(parts) <= 0.9 * memory:
            return parts


def fewest_parts(peak_of, rows, memory):
    """The first power of two."""
    parts = 1
    while parts <= rows and peak_of(parts) > 0.9 * memory:
        parts *= 2
    return parts if parts <= rows else None


def fewest_parts(peak_of, rows, memory):
    """All of the peak is divided by the parts."""
    parts = int(peak_of(1) / (0.9 * memory)) + 1
    return parts if parts <= rows else None
