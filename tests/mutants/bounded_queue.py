EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the queue holds any number", "queued = max(queued + load, room)", "queued = queued + load"),
    ("room when the step before has ended", "room = taken[i - capacity]", "room = ends[i - capacity]"),
    ("one place too many", "taken[i - capacity] if i >= capacity", "taken[i - capacity - 1] if i > capacity"),
    ("room for one, whatever the capacity", "taken[i - capacity] if i >= capacity", "taken[i - 1] if i"),
    ("only the last", "return ends", "return ends[-1:]"),
]


def bounded_queue(loads, steps, capacity):
    """The slower stage sets the pace of each batch."""
    ends, now = [], loads[0] if loads else 0
    for load, step in zip(loads, steps):
        now += max(load, step)
        ends.append(now)
    return ends
