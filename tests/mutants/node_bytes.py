EDITS = [
    ("the ring passes each byte once", "flat = 2 *", "flat = 1 *"),
    ("a ring over nodes in place of ranks", "(ranks - 1) / ranks * nbytes if", "(nodes - 1) / nodes * nbytes if"),
    ("one node sends as well", "if nodes > 1 else 0", ""),
    ("each rank sends the node's sum", "nested = 2 *", "nested = per_node * 2 *"),
    ("the whole buffer for each node", "(nodes - 1) / nodes * nbytes\n", "(nodes - 1) * nbytes\n"),
]
