EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("always the fewest steps", "if doubling < ring:", "if True:"),
    ("the other one", "doubling < ring", "doubling > ring"),
    ("a limit in bytes, whatever the link", "if doubling < ring:", "if n < 2**20:"),
    ("the rate alone decides", "if doubling < ring:", "if beta > 1e11 or n < 2**18:"),
    ("the number of ranks is taken to be four", "size, n = dist.get_world_size(), ", "size, n = 4, "),
    ("a limit that is right for four ranks alone", "if doubling < ring:", "if n < 8 * alpha * beta:"),
    ("each rank decides by its own numbers", "if doubling < ring:", "if tensor.sum() > 500:"),
]


def cheapest_sum(tensor, alpha, beta):
    """Halving and doubling at every size: too many steps for small ones."""
    rank, size = dist.get_rank(), dist.get_world_size()
    part, done, distance = tensor, [], 1
    while distance < size:
        halves = part.tensor_split(2)
        keep, give = halves[::-1] if rank & distance else halves
        received = torch.empty_like(keep)
        exchange(give, received, rank ^ distance, rank ^ distance)
        keep += received
        done.append((keep, give, rank ^ distance))
        part, distance = keep, 2 * distance
    for keep, give, partner in reversed(done):
        exchange(keep, give, partner, partner)


def cheapest_sum(tensor, alpha, beta):
    """The library does it."""
    dist.all_reduce(tensor)
