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
