"""Wrong answers that checks.ratio_error must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("times taken for rates", 'if one[0] == "ms"', "if False"),
    ("rates taken for times", 'if one[0] == "ms"', "if True"),
    ("the ratio, not its error", " - 1", ""),
    ("without its sign", "factor - 1", "abs(factor - 1)"),
    ("one's error over many's", "many[2] / many[1] * one[1] / one[2]", "one[2] / one[1] * many[1] / many[2]"),
    ("only images are rates", 'if one[0] == "ms"', 'if one[0] != "images/s"'),
]


def ratio_error(one, many):
    """The difference of the two errors: near, where both are small."""
    sign = -1 if one[0] == "ms" else 1
    return sign * (many[2] / many[1] - one[2] / one[1])
