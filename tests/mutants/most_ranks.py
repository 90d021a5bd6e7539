# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("as good counts", "(2 * dense - 1) // message", "2 * dense // message"),
    ("a ring moves the gradients once", "(2 * dense - 1)", "(dense - 1)"),
    ("messages travel twice", "// message)", "// (2 * message))"),
    ("no rank at all", "max(1, ", "max(0, "),
    ("floating point", "(2 * dense - 1) // message", "int((2 * dense - 1) / message)"),
]
