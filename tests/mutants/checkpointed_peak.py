EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("all checkpoints stay to the end", "saved[: start + 1 : k]", "saved[::k]"),
    ("the segment's own checkpoint is forgotten", "saved[: start + 1 : k]", "saved[:start:k]"),
    ("the checkpoint is counted twice", "saved[start + 1 : start + k]", "saved[start : start + k]"),
    ("the segment is one layer too long", "start + k]", "start + k + 1]"),
    ("a text", "return most", "return str(most)"),
]
