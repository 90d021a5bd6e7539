EDITS = [
    ("rounded down", "math.ceil(", "math.floor("),
    ("not rounded", "math.ceil(", "("),
    ("a ring passes its bytes once", "2 * (workers - 1)", "(workers - 1)"),
    ("a ring of infinitely many", "2 * (workers - 1) / workers", "2"),
    ("a server for each worker", "math.ceil(workers / per_rank)", "workers"),
]
