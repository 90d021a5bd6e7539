"""Wrong answers to the exercise recursive-doubling, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("buffers overwrite in place of adding", '"reduce"', '"copy"'),
    ("the same partner every time (double count)", "rank ^ distance", "rank ^ 1"),
    ("the partner is off by one", "rank ^ distance", "(rank + distance + 1) % world_size"),
    ("everybody sends to the right: ranks then differ in bits", "rank ^ distance", "(rank + distance) % world_size"),
    ("everybody sends to the left: ranks then differ in bits", "rank ^ distance", "(rank - distance) % world_size"),
    ("one step too many", "while distance < world_size", "while distance <= world_size"),
    ("one step too few (off by one)", "while distance < world_size", "while 2 * distance < world_size"),
    ("distances grow by one", "distance *= 2", "distance += 1"),
    ("half of the ranks send (stale)", "for rank in range(world_size)", "for rank in range(world_size // 2)"),
    ("the last rank is dropped", "for rank in range(world_size)", "for rank in range(world_size - 1)"),
    ("a chunk that does not exist", "0, 1, ", "0, 2, "),
    ("an empty message", "0, 1, ", "0, 0, "),
    ("one send a step", "steps.append(sends)", "steps.extend([send] for send in sends)"),
    ("every message twice", "steps.append(sends)", "steps.append(sends + sends)"),
    ("nothing is returned", "return steps", "steps"),
    ("pairs of numbers in place of sends", "steps.append(sends)", "steps.append([send[:2] for send in sends])"),
]  # fmt: skip


def recursive_doubling(world_size):
    """A tree: right, but twice as many steps."""
    from d2lmini.collectives.schedules import allreduce_tree
    return allreduce_tree(world_size).steps


def recursive_doubling(world_size):
    """Everybody sends to everybody at once."""
    ranks = range(world_size)
    return [[Send(a, b, 0, 1, "reduce") for a in ranks for b in ranks if a != b]]
