EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("those that are ahead", "min(number for", "max(number for"),
    ("everybody where no rank is behind", "if len(behind) < len(last):", "if behind:"),
    ("those that agree", "if kind != usual", "if kind == usual"),
    ("only one of them", "return behind", "return behind[:1]"),
]


def suspects(last):
    """The first pair in the order of pairs: a kind's letters decide."""
    return [r for r, pair in enumerate(last) if pair == min(last)]
