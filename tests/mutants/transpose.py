EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("padding only where it is put", "warp.get(33 * lane", "warp.get(32 * lane"),
    ("a copy, not a transposition", "warp.get(33 * lane + column)", "warp.get(33 * column + lane)"),
    ("stored down a column", "warp.store(32 * column + lane", "warp.store(32 * lane + column"),
    ("the last row is left out", "for row in range(32)", "for row in range(31)"),
    ("padded in global memory too", "warp.load(32 * row", "warp.load(33 * row"),
]


def transpose(warp):
    """Without padding: a column of shared memory is in one bank."""
    lane = np.arange(32)
    for row in range(32):
        warp.put(32 * row + lane, warp.load(32 * row + lane))
    for column in range(32):
        warp.store(32 * column + lane, warp.get(32 * lane + column))


def transpose(warp):
    """Two words of padding: threads 0 and 16 meet in a bank."""
    lane = np.arange(32)
    for row in range(32):
        warp.put(34 * row + lane, warp.load(32 * row + lane))
    for column in range(32):
        warp.store(32 * column + lane, warp.get(34 * lane + column))


def transpose(warp):
    """Loads down a column in place of stores."""
    lane = np.arange(32)
    for column in range(32):
        warp.store(32 * column + lane, warp.load(32 * lane + column))


def transpose(warp):
    """The threads exchange numbers behind the memory's back."""
    lane = np.arange(32)
    matrix = np.stack([warp.load(32 * row + lane) for row in range(32)])
    for column in range(32):
        warp.store(32 * column + lane, matrix[:, column])


def transpose(warp):
    """Through shared memory and all the same down a column."""
    lane = np.arange(32)
    for row in range(32):
        warp.put(33 * row + lane, warp.load(32 * row + lane))
    for row in range(32):
        warp.store(32 * lane + row, warp.get(33 * row + lane))
