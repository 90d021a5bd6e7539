# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("the first GPU sends to itself as well", "(gpus - 1) * (outputs / gpus", "gpus * (outputs / gpus"),
    ("every GPU sends all outputs", "outputs / gpus + parameters", "outputs + parameters"),
    ("the gradients are shared like the outputs", "outputs / gpus + parameters", "(outputs + parameters) / gpus"),
    ("half of the ring, a reduce-scatter", "2 * parameters", "parameters"),
    ("a ring that sends whole tensors", "* (gpus - 1) / gpus", "* (gpus - 1)"),
]
