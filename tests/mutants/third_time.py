EDITS = [
    ("all of it is shared", "return serial + ", "return "),
    ("the serial part is divided too", "serial + shared / workers", "(serial + shared) / workers"),
    ("differences of workers in place of shares", "(1 / p - 1 / q)", "(q - p)"),
    ("the wrong sign", "t - shared / p", "t + shared / p"),
    ("the first time stays", "serial = t - shared / p", "serial = t"),
    ("the shared part is rounded down", "(t - u) / (1", "(t - u) // (1"),
]
