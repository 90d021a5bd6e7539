EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("rounded down", "math.ceil(load / step)", "load // step"),
    ("rounded to the nearest", "math.ceil(load / step)", "max(1, round(load / step))"),
    ("one too many", "math.ceil(load / step)", "load // step + 1"),
    ("busier than always", "min(1.0, workers * step / load)", "workers * step / load"),
    ("only the workers", "return workers, min(1.0, workers * step / load)", "return workers"),
]
