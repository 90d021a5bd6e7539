# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("the unsent is forgotten", "due = gradient + unsent", "due = gradient + 0"),
    ("signs count", "due.abs().topk(k)", "due.topk(k)"),
    ("what was sent stays due", "left[places] = 0", "pass"),
    ("one too few", "topk(k)", "topk(max(1, k - 1))"),
    ("nothing is sent", "left[places] = 0", "values = 0 * values"),
    ("places from the end", "return values, places,", "return values, places - len(due),"),
    ("inputs are changed", "due = gradient + unsent", "due = unsent.add_(gradient)"),
]
