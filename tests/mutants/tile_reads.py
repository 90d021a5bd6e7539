EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the last, narrow column of tiles is forgotten", "math.ceil(n / tile_n)", "(n // tile_n)"),
    ("a narrow rest is rounded away", "math.ceil(n / tile_n)", "round(n / tile_n + 0.49)"),
    ("no remainders", "math.ceil(n / tile_n)", "n / tile_n"),
    ("a list of a number", "return of_A + of_B", "return [of_A + of_B]"),
    ("a number as text", "return of_A + of_B", "return str(of_A + of_B)"),
    ("True", "return of_A + of_B", "return bool(of_A + of_B)"),
    ("nothing is returned", "return of_A + of_B", "of_A + of_B"),
]


def tile_reads(m, n, k, tile_m, tile_n):
    """The formula for sizes that divide."""
    return m * n * k * (1 / tile_n + 1 / tile_m)
