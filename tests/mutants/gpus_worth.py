EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("messages are forgotten", "sum(parts) + exposed", "sum(parts)"),
    ("nothing of the last message is left at equal times", "max(A / 4, A - 3 / 4 * B)", "max(0, A - B)"),
    ("only the last message is left", "max(A / 4, A - 3 / 4 * B)", "A / 4"),
    ("the whole all-reduce is exposed", "max(A / 4, A - 3 / 4 * B)", "A"),
    ("the forward pass hides messages too", "A, B = message(gpus), parts[1]", "A, B = message(gpus), sum(parts)"),
    ("every GPU gets the whole batch", "tokens // gpus", "tokens"),
    ("the speed-up in place of the efficiency", "one / gpus / (", "one / ("),
    ("weak scaling's efficiency", "one / gpus / (", "sum(parts) / ("),
    ("the fewest GPUs that are efficient enough", "            best = gpus", "            return gpus"),
]


def gpus_worth(step, message, tokens, least, counts):
    """As many as leave each GPU the batch at which backward and all-reduce are equal."""
    return max([1] + [gpus for gpus in counts if step(tokens // gpus)[1] >= message(gpus)])


def gpus_worth(step, message, tokens, least, counts):
    """The answer of the first case, always."""
    return 4
