EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("A is skewed the wrong way", "a[i].roll(-i)", "a[i].roll(i)"),
    ("b stays (stale)", "b.roll(-1, dims=0)", "b"),
    ("sums start at one", "zeros_like", "ones_like"),
    ("the sum is changed in place, so all cycles show the last", "c = c + a * b", "c += a * b"),
    ("a cycle is missing (off by one)", "for _ in range(n)", "for _ in range(n - 1)"),
    ("a cycle too many", "for _ in range(n)", "for _ in range(n + 1)"),
]
