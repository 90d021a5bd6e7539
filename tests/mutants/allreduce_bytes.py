# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("device 0 copies to itself", "(devices - 1) * nbytes", "devices * nbytes"),
    ("there, but not back", "return 2 * into_first", "return into_first"),
    ("all of them end at device 0", ", into_first\n", ", 2 * into_first\n"),
    ("a ring's bytes", "(devices - 1) * nbytes", "(devices - 1) / devices * nbytes"),
    ("one number", "return 2 * into_first, into_first", "return 2 * into_first"),
]
