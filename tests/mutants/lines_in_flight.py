"""Wrong answers to the exercise lines-in-flight, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("divided in place of multiplied", "bytes_per_s * latency_s", "bytes_per_s / latency_s"),
    ("bytes in place of lines", " / line", ""),
    ("lines of 64 bytes always", " / line", " / 64"),
    ("rounded down", "math.ceil(", "math.floor("),
    ("rounded to the nearest", "math.ceil(", "round("),
    ("one line too many", "math.ceil(", "1 + math.ceil("),
    ("bits in place of bytes", "bytes_per_s * latency_s", "8 * bytes_per_s * latency_s"),
    ("there and back counted", "bytes_per_s * latency_s", "2 * bytes_per_s * latency_s"),
    ("not rounded", "math.ceil(", "float("),
    ("nothing is returned", "return math", "math"),
    ("one more than the whole part, also where there is no rest", "math.ceil(", "1 + int("),
    ("a text", "math.ceil(bytes_per_s * latency_s / line)", "str(math.ceil(bytes_per_s * latency_s / line))"),
]
