EDITS = [
    ("only the forward pass", "= 6 * parameters", "= 2 * parameters"),
    ("the share of the peak is left out", "peak * share", "peak"),
    ("rounded down", "ceil(flops", "int(flops"),
    ("memory is rounded down", "ceil(16 *", "int(16 *"),
    ("one more than needed", "ceil(16 * parameters / memory)", "16 * parameters // memory + 1"),
    ("parameters alone", "16 * parameters", "2 * parameters"),
    ("time alone", "max(for_time, for_memory)", "for_time"),
    ("one behind the other", "max(for_time, for_memory)", "for_time + for_memory"),
]
