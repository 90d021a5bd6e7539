"""Wrong answers to the exercise too-large, which its check must reject."""

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("what just fits is named too", "> nbytes", ">= nbytes"),
    ("the smallest first", "reverse=True", "reverse=False"),
    ("not sorted", "    large.sort(key=lambda row: row.working_set, reverse=True)\n", ""),
    ("sorted by weights", "large.sort(key=lambda row: row.working_set", "large.sort(key=lambda row: row.weight_bytes"),
    ("a layer is named twice", "list(dict.fromkeys(row.name for row in large))", "[row.name for row in large]"),
    ("rows in place of names", "row.name for", "row for"),
    ("outputs are forgotten", "row.working_set > nbytes", "row.input_bytes + row.weight_bytes > nbytes"),
    ("inputs are forgotten", "row.working_set > nbytes", "row.output_bytes + row.weight_bytes > nbytes"),
    ("only the largest", "row in large))", "row in large[:1]))"),
]

# what is wrong, a whole function
FUNCTIONS = [
    (
        "a layer that is called twice keeps the size of its last call",
        """
def too_large(rows, nbytes):
    size = {row.name: row.working_set for row in rows}
    return sorted((name for name in size if size[name] > nbytes), key=size.get, reverse=True)
""",
    ),
    (
        "a layer that is called twice keeps the size of its first call",
        """
def too_large(rows, nbytes):
    size = {row.name: row.working_set for row in reversed(rows)}
    return sorted((name for name in size if size[name] > nbytes), key=size.get, reverse=True)
""",
    ),
    (
        "the calls of a layer are added up",
        """
def too_large(rows, nbytes):
    size = {}
    for row in rows:
        size[row.name] = size.get(row.name, 0) + row.working_set
    return sorted((name for name in size if size[name] > nbytes), key=size.get, reverse=True)
""",
    ),
    (
        "a set, which has no order",
        """
def too_large(rows, nbytes):
    return {row.name for row in rows if row.working_set > nbytes}
""",
    ),
]
