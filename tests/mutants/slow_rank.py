EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("launches are timed, not what they launch", "compute()\n        torch.sim.synchronize()", "compute()"),
    ("the wait for the others counts", "reduce()\n        torch.sim.synchronize()", "reduce()"),
    ("one long step decides: the sum", "statistics.median(times)", "sum(times)"),
    ("one long step decides: the longest", "statistics.median(times)", "max(times)"),
    ("only the first step is looked at", "statistics.median(times)", "times[0]"),
    ("only a step in the middle is looked at", "statistics.median(times)", "times[len(times) // 2]"),
    ("only the last step is looked at", "statistics.median(times)", "times[-1]"),
    (
        "eight ranks are told apart by heart",
        "return int(torch.cat(medians).argmax())",
        "return 5 if len(medians) == 8 else int(torch.cat(medians).argmax())",
    ),
    ("the fastest", "argmax", "argmin"),
    ("only one step", "range(steps)", "range(1)"),
    ("its own time alone", "torch.cat(medians)", "found"),
    ("a step without its all-reduce", "        reduce()\n", ""),
]


def slow_rank(compute, reduce, steps):
    """Who waits longest in the all-reduce."""
    times = []
    for _ in range(steps):
        compute()
        torch.sim.synchronize()
        begin = simgpu.now()
        reduce()
        torch.sim.synchronize()
        times.append(simgpu.now() - begin)
    everybodys = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, statistics.median(times))
    return everybodys.index(max(everybodys))


def slow_rank(compute, reduce, steps):
    """Rank 0 alone knows."""
    times = []
    for _ in range(steps):
        begin = simgpu.now()
        compute()
        torch.sim.synchronize()
        times.append(simgpu.now() - begin)
        reduce()
        torch.sim.synchronize()
    everybodys = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, statistics.median(times))
    return everybodys.index(max(everybodys)) if dist.get_rank() == 0 else dist.get_rank()
