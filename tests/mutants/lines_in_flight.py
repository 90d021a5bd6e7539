EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("divided in place of multiplied", "bytes_per_s * latency_s", "bytes_per_s / latency_s"),
    ("bytes in place of lines", " / line", ""),
    ("almost rounded up", "math.ceil(", "int(0.999 + "),
    (
        "half a line more, rounded: an odd quotient becomes even",
        "math.ceil(bytes_per_s * latency_s / line)",
        "round(bytes_per_s * latency_s / line + 0.5)",
    ),
    ("not rounded", "math.ceil(", "float("),
    ("nothing is returned", "return math", "math"),
    ("a text", "math.ceil(bytes_per_s * latency_s / line)", "str(math.ceil(bytes_per_s * latency_s / line))"),
]
