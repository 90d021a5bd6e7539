"""Wrong answers to the exercise sharded-step, which its check must reject."""

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("the sum, not the mean", "/ size", "/ 1"),
    ("a rank's own gradient alone", "gradient.tensor_split(size)[rank] for gradient in gradients",
     "gradients[rank].tensor_split(size)[rank] for _ in gradients"),
    ("the velocity is forgotten", "beta * velocities[rank] + mean", "mean"),
    ("the velocity is not decayed", "beta * velocities[rank]", "velocities[rank]"),
    ("all use the first rank's shard of the parameters", "parameters.tensor_split(size)[rank]",
     "parameters.tensor_split(size)[0]"),
    ("the step goes uphill", "- lr * velocity", "+ lr * velocity"),
    ("old velocities come back", "return torch.cat(shards), moved", "return torch.cat(shards), velocities"),
    ("parameters stay in shards", "torch.cat(shards)", "shards"),
    ("the learning rate is inside the velocity", "beta * velocities[rank] + mean",
     "beta * velocities[rank] + lr * mean"),
]  # fmt: skip
