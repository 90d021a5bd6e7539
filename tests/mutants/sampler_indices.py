# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("each rank has its own order", "manual_seed(epoch)", "manual_seed(epoch + 100 * rank)"),
    ("nothing is shuffled", "torch.randperm(n, generator=numbers)", "torch.arange(n)"),
    (
        "each epoch begins at another example, and no order is shuffled",
        "torch.randperm(n, generator=numbers)",
        "torch.arange(epoch, n + epoch).remainder(n)",
    ),
    ("the last places stay empty", "order[place % n]", "order[min(place, n)]"),
    ("always the last example fills up", "order[place % n]", "order[min(place, n - 1)]"),
    ("ranks differ in how much they get", "each * world_size, world_size", "n, world_size"),
    ("the rank's own random numbers are seeded anew", "torch.Generator().manual_seed", "torch.manual_seed"),
]


def sampler_indices(n, rank, world_size, epoch):
    """All epochs have one order, and each begins at another place of it."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()
    each = -(-n // world_size)
    return [order[(place + epoch) % n] for place in range(rank, each * world_size, world_size)]


def sampler_indices(n, rank, world_size, epoch):
    """Each rank keeps its examples and shuffles them among themselves."""
    mine = [place % n for place in range(rank, -(-n // world_size) * world_size, world_size)]
    numbers = torch.Generator().manual_seed(epoch)
    return [mine[i] for i in torch.randperm(len(mine), generator=numbers)]


def sampler_indices(n, rank, world_size, epoch):
    """Python's random numbers, which the whole rank uses, are seeded anew."""
    import random

    random.seed(epoch)
    order = random.sample(range(n), n)
    return [order[place % n] for place in range(rank, -(-n // world_size) * world_size, world_size)]


def sampler_indices(n, rank, world_size, epoch):
    """The examples of the first half are shuffled, and come before those of the second, which are shuffled too."""
    numbers = torch.Generator().manual_seed(epoch)
    first, second = torch.arange(n)[: n // 2], torch.arange(n)[n // 2 :]
    order = [int(half[i]) for half in (first, second) for i in torch.randperm(len(half), generator=numbers)]
    return [order[place % n] for place in range(rank, -(-n // world_size) * world_size, world_size)]
