# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("the plain mean of the means", "n * m for n, m in zip(counts, means)", "m for n, m in zip(counts, means)"),
    ("the spread of the means is left out", "v + (m - mean) ** 2", "v"),
    ("the spread is not squared", "(m - mean) ** 2", "(m - mean)"),
    ("the unbiased variance", "squares / total", "squares / (total - 1 + (total == 1))"),
    ("the mean alone comes back", "return mean, squares / total", "return mean"),
]
