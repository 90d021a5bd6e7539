"""Wrong answers to the exercise on the users that a GPU can serve."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the time does not count", "min(memory, bandwidth * longest)", "memory"),
    ("the memory does not count", "min(memory, bandwidth * longest)", "bandwidth * longest"),
    ("the weights are not read", "- weights", "- 0"),
    ("fewer than no users", "max(0, int(room // cache))", "int(room // cache)"),
    ("half a user", "int(room // cache)", "room / cache"),
]
