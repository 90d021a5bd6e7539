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


def committed_sum(x, y):
    """The sum is made on the CPU and moved: three copies in place of one."""
    (x, x_committed), (y, y_committed) = x, y
    if x_committed and y_committed and x.device != y.device:
        raise ValueError(f"{x.device}, {y.device}")
    device = y.device if y_committed else x.device
    return (x.cpu() + y.cpu()).to(device), x_committed or y_committed
