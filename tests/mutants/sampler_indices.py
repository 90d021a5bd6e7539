"""Wrong answers to the exercise sampler-indices, which its check must reject."""

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("each rank has its own order", "manual_seed(epoch)", "manual_seed(epoch + 100 * rank)"),
    ("the order of the epoch is that of the first", "manual_seed(epoch)", "manual_seed(0)"),
    ("the rank's own random numbers", "torch.randperm(n, generator=numbers)", "torch.randperm(n)"),
    ("nothing is shuffled", "torch.randperm(n, generator=numbers)", "torch.arange(n)"),
    ("the last places stay empty", "order[place % n]", "order[min(place, n)]"),
    ("the remainder is left out", "-(-n // world_size)", "(n // world_size)"),
    ("blocks that overlap", "rank, each * world_size, world_size", "rank, rank + each"),
    ("always the last example fills up", "order[place % n]", "order[min(place, n - 1)]"),
    ("the places, not the examples", "order[place % n]", "place % n"),
    ("ranks differ in how much they get", "each * world_size, world_size", "n, world_size"),
    ("the first rank's part for all", "range(rank, ", "range(0, "),
]
