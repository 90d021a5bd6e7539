EDITS = [
    ("never scaled", "batch / base_batch", "1"),
    ("by the square root", "batch / base_batch", "(batch / base_batch) ** 0.5"),
    ("warm-up begins at zero", "base_rate + (high - base_rate)", "high"),
    ("warm-up is one step too long", "step >= warmup", "step > warmup + 1"),
    ("no warm-up", "step >= warmup", "True"),
]
