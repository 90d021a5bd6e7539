import torch

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("the sum, not the mean", "/ size", "/ 1"),
    (
        "a rank's own gradient alone",
        "gradient.tensor_split(size)[rank] for gradient in gradients",
        "gradients[rank].tensor_split(size)[rank] for _ in gradients",
    ),
    ("the velocity is forgotten", "beta * velocities[rank] + mean", "mean"),
    ("the velocity is not decayed", "beta * velocities[rank]", "velocities[rank]"),
    ("parameters stay in shards", "torch.cat(shards)", "shards"),
]


def sharded_step(parameters, gradients, velocities, lr, beta):
    """The rate goes into the velocity: with one rate the parameters are the same, and the state is not."""
    mean = (sum(gradients) / len(gradients)).tensor_split(len(velocities))
    moved = [beta * velocity + lr * part for velocity, part in zip(velocities, mean)]
    return parameters - torch.cat(moved), moved
