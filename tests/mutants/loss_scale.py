"""Wrong answers that checks.loss_scale must reject."""

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("half of it", "2.0**math.floor(math.log2(limit / most))", "2.0**math.floor(math.log2(limit / most) - 1)"),
    ("too large for the loop", "scale /= 2", "break"),
    ("no power of two", "2.0**math.floor(math.log2(limit / most))", "limit / most"),
    ("rounding is forgotten", "while scale * most > limit:", "while False:"),
    ("signs are forgotten", "g.abs().max()", "g.max()"),
    ("never less than one", "return scale", "return max(1.0, scale)"),
    ("zeros divide", "if most == 0:", "if most < 0:"),
    ("zeros have no scale", "return 1.0", "return 0.0"),
    ("the smallest counts", "most = max(", "most = min("),
    ("a text", "return scale", "return str(scale)"),
]
