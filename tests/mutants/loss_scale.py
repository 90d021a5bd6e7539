# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("half of it", "2.0**math.floor(math.log2(limit / most))", "2.0**math.floor(math.log2(limit / most) - 1)"),
    ("rounding is forgotten", "while scale * most > limit:", "while False:"),
    ("zeros divide", "if most == 0:", "if most < 0:"),
    ("the smallest counts", "most = max(", "most = min("),
    ("the first tensor alone", "max(g.abs().max().item() for g in gradients)", "gradients[0].abs().max().item()"),
    ("the tensors' largest are added", "most = max(", "most = sum("),
    ("the norm, not the largest", "g.abs().max().item()", "g.norm().item()"),
    ("a text", "return scale", "return str(scale)"),
]
