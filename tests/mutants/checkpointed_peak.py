"""Wrong answers to the exercise checkpointed-peak, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("all checkpoints stay to the end", "saved[: start + 1 : k]", "saved[::k]"),
    ("the segment's own checkpoint is forgotten", "saved[: start + 1 : k]", "saved[:start:k]"),
    ("the checkpoint is counted twice", "saved[start + 1 : start + k]", "saved[start : start + k]"),
    ("the segment is one layer too long", "start + k]", "start + k + 1]"),
    ("the segment is one layer too short", "start + k]", "start + k - 1]"),
    ("every layer before is a checkpoint", "saved[: start + 1 : k]", "saved[: start + 1]"),
    ("the last segment only", "most = max(most, checkpoints + segment)", "most = checkpoints + segment"),
    ("nothing is recomputed", "checkpoints + segment)", "checkpoints)"),
    ("a text", "return most", "return str(most)"),
    ("a remainder is no segment", "range(0, len(saved), k)", "range(0, len(saved) // k * k, k)"),
]
