"""Wrong answers that checks.worker_plan must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("rounded down", "math.ceil(load / step)", "load // step"),
    ("rounded to the nearest", "math.ceil(load / step)", "max(1, round(load / step))"),
    ("one too many", "math.ceil(load / step)", "load // step + 1"),
    ("one too many, to be safe", "math.ceil(load / step)", "math.ceil(load / step) + 1"),
    ("the cores are forgotten", "min(math.ceil(load / step), cores)", "math.ceil(load / step)"),
    ("a core is kept for the program", "cores)\n", "max(1, cores - 1))\n"),
    ("busier than always", "min(1.0, workers * step / load)", "workers * step / load"),
    ("as with one worker", "workers * step / load", "step / load"),
    ("upside down", "workers * step / load", "load / (workers * step)"),
    ("in per cent", "min(1.0, workers * step / load)", "100 * min(1.0, workers * step / load)"),
    ("only the workers", "return workers, min(1.0, workers * step / load)", "return workers"),
    ("the other way round", "return workers, min(1.0, workers * step / load)",
     "return min(1.0, workers * step / load), workers"),
]  # fmt: skip
