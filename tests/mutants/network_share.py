EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the tensor once", "2 * (ranks - 1) / ranks * nbytes / rate", "nbytes / rate"),
    ("twice the tensor", "2 * (ranks - 1) / ranks * nbytes / rate", "2 * nbytes / rate"),
    ("nodes for ranks", "ranks = nodes * per_node", "ranks = nodes"),
    ("compared with compute alone", "seconds / (compute + seconds)", "seconds / compute"),
    ("compute's share", "return seconds / (compute + seconds)", "return compute / (compute + seconds)"),
    ("one node sends over the network", "if nodes == 1:", "if nodes == 0:"),
    ("in per cent", "return seconds /", "return 100 * seconds /"),
]


def network_share(nbytes, nodes, per_node, rate, compute):
    """Each GPU has an adapter with the node's whole rate."""
    seconds = 2 * nbytes / (rate * per_node)
    return seconds / (compute + seconds)
