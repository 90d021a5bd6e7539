"""Wrong answers to the exercise cannon, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("A is skewed the wrong way", "a[i].roll(-i)", "a[i].roll(i)"),
    ("A is not skewed", "a[i].roll(-i)", "a[i]"),
    ("B is not skewed", "b[:, i].roll(-i)", "b[:, i]"),
    ("a moves to the right", "a.roll(-1, dims=1)", "a.roll(1, dims=1)"),
    ("a moves up", "a.roll(-1, dims=1)", "a.roll(-1, dims=0)"),
    ("b moves down", "b.roll(-1, dims=0)", "b.roll(1, dims=0)"),
    ("b stays (stale)", "b.roll(-1, dims=0)", "b"),
    ("sums start at one", "zeros_like", "ones_like"),
    ("only the last product is kept", "c = c + a * b", "c = a * b"),
    ("the sum is changed in place, so all cycles show the last", "c = c + a * b", "c += a * b"),
    ("a cycle is missing (off by one)", "for _ in range(n)", "for _ in range(n - 1)"),
    ("a cycle too many", "for _ in range(n)", "for _ in range(n + 1)"),
    ("the matrix product in each cycle", "c + a * b", "c + a @ b"),
    ("only the sums are returned", "states.append((a, b, c))", "states.append(c)"),
    ("nothing is returned", "return states", "states"),
]


def cannon(A, B):
    """The answer without the array."""
    return [(A, B, A @ B)] * len(A)


def cannon(A, B):
    """The inputs are skewed where they are."""
    n, states, c = len(A), [], torch.zeros_like(A)
    for i in range(n):
        A[i] = A[i].roll(-i)
        B[:, i] = B[:, i].roll(-i)
    for _ in range(n):
        c = c + A * B
        states.append((A.clone(), B.clone(), c))
        A, B = A.roll(-1, dims=1), B.roll(-1, dims=0)
    return states
