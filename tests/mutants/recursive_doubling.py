EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("buffers overwrite in place of adding", '"reduce"', '"copy"'),
    ("the same partner every time (double count)", "rank ^ distance", "rank ^ 1"),
    ("the partner is off by one", "rank ^ distance", "(rank + distance + 1) % world_size"),
    ("everybody sends to the right: ranks then differ in bits", "rank ^ distance", "(rank + distance) % world_size"),
    ("one step too many", "while distance < world_size", "while distance <= world_size"),
]


def recursive_doubling(world_size):
    """A tree: right, but twice as many steps."""
    from d2lmini.collectives.schedules import allreduce_tree

    return allreduce_tree(world_size).steps
