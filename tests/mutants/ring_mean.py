"""Wrong answers to the exercise ring-mean, which its check must reject."""

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("the sum is not divided", "        tensor /= size\n", "        pass\n"),
    ("divided by one rank too many (off by one)", "tensor /= size", "tensor /= size + 1"),
    ("only the first rank divides (stale replica)", "for tensor in tensors:\n        tensor", "for tensor in tensors[:1]:\n        tensor"),
    ("finished chunks are added once more (double count)", "mine[c].copy_(", "mine[c].add_("),
    ("chunks overwrite in place of adding", "mine[c].add_(", "mine[c].copy_("),
    ("one step too few", "for t in range(size - 1):\n        for rank in order:\n            c = (rank - t)", "for t in range(size - 2):\n        for rank in order:\n            c = (rank - t)"),
    ("one step too many", "for t in range(size - 1):\n        for rank in order:\n            c = (rank - t)", "for t in range(size):\n        for rank in order:\n            c = (rank - t)"),
    ("the second lap starts with the wrong chunk", "(rank + 1 - t)", "(rank - t)"),
    ("the second lap is one step short (stale replica)", "for t in range(size - 1):\n        for rank in order:\n            c = (rank + 1 - t)", "for t in range(size - 2):\n        for rank in order:\n            c = (rank + 1 - t)"),
    ("the ring is not closed", "tensors[(rank + 1) % size]", "tensors[min(rank + 1, size - 1)]"),
    ("the remainder is dropped", "return tensor.tensor_split(size)", "return tensor[: len(tensor) // size * size].tensor_split(size)"),
    ("too few chunks for short tensors", "return tensor.tensor_split(size)", "return tensor.split(max(1, len(tensor) // size))"),
    ("whole tensors are sent", "sent = parts(tensors[rank])[c].to(there.device)", "sent = parts(tensors[rank].to(there.device))[c]"),
    ("the last rank is left out", "order = [*range(0, size, 2), *range(1, size, 2)]", "order = range(size - 1)"),
]  # fmt: skip

# what is wrong, a whole function
FUNCTIONS = [
    (
        "everything over rank 0",
        """
def ring_mean(tensors):
    for tensor in tensors[1:]:
        tensors[0] += tensor.to(tensors[0].device)
    for tensor in tensors[1:]:
        tensor.copy_(tensors[0])
    for tensor in tensors:
        tensor /= len(tensors)
""",
    ),
    (
        "over the host",
        """
def ring_mean(tensors):
    total = sum(tensor.cpu() for tensor in tensors) / len(tensors)
    for tensor in tensors:
        tensor.copy_(total)
""",
    ),
    (
        "whole tensors around the ring",
        """
def ring_mean(tensors):
    size, passing = len(tensors), [tensor.clone() for tensor in tensors]
    for t in range(size - 1):
        passing = [passing[rank - 1].to(tensors[rank].device) for rank in range(size)]
        for tensor, came in zip(tensors, passing):
            tensor += came
    for tensor in tensors:
        tensor /= size
""",
    ),
    (
        "the list gets new tensors",
        """
def ring_mean(tensors):
    total = sum(tensor.cpu() for tensor in tensors) / len(tensors)
    tensors[:] = [total.to(tensor.device) for tensor in tensors]
""",
    ),
    (
        "nothing is done",
        """
def ring_mean(tensors):
    return tensors
""",
    ),
]
