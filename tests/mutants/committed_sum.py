EDITS = [
    ("always on the first operand's device", "y.device if y_committed else x.device", "x.device"),
    ("always on the second operand's device", "y.device if y_committed else x.device", "y.device"),
    ("nothing is refused", "x_committed and y_committed and", "False and"),
    ("different devices are always refused", "x_committed and y_committed and", ""),
    ("one that is committed is enough to refuse", "x_committed and y_committed", "(x_committed or y_committed)"),
    ("the sum is committed when both are", "x_committed or y_committed", "x_committed and y_committed"),
    ("the sum is always committed", "x_committed or y_committed", "True"),
    ("which device is not said", "{x.device} and on {y.device}", "two devices"),
]
