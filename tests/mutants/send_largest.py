"""Wrong answers that checks.send_largest must reject."""

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("the unsent is forgotten", "due = gradient + unsent", "due = gradient + 0"),
    ("the largest of the gradient", "due.abs().topk(k)", "gradient.abs().topk(k)"),
    ("signs count", "due.abs().topk(k)", "due.topk(k)"),
    ("magnitudes are sent", "values = due[places]", "values = due.abs()[places]"),
    ("gradients are sent", "values = due[places]", "values = gradient[places]"),
    ("what was sent stays due", "left[places] = 0", "pass"),
    ("nothing stays due", "left[places] = 0", "left[:] = 0"),
    ("one too few", "topk(k)", "topk(max(1, k - 1))"),
    ("the other way round", "return values, places, left", "return places, values, left"),
    ("inputs are changed", "due = gradient + unsent", "due = unsent.add_(gradient)"),
]
