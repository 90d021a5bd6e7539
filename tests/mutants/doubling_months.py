EDITS = [
    ("in years", "12 * years", "years"),
    ("the natural logarithm", "log2(last / first)", "log2(last / first) * 0.6931471805599453"),
    ("the other way round", "last / first", "first / last"),
    ("halving is not minus", "log2(last / first)", "abs(log2(last / first))"),
    ("a straight line", "log2(last / first)", "(last / first / 2)"),
]
