"""Wrong answers to the exercise ring-mean, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum is not divided", "        tensor /= size\n", "        pass\n"),
    ("divided by one rank too many (off by one)", "tensor /= size", "tensor /= size + 1"),
    ("only the first rank divides (stale replica)", "for tensor in tensors:\n", "for tensor in tensors[:1]:\n"),
    ("finished chunks are added once more (double count)", "chunks[there][c].copy_(chunks[here][c])",
     "chunks[there][c].add_(chunks[here][c].to(tensors[there].device))"),
    ("chunks overwrite in place of adding", "chunks[there][c].add_(", "chunks[there][c].copy_("),
    ("the first lap takes the wrong chunk", "(here - t)", "(here + t)"),
    ("the second lap starts with the wrong chunk", "(here + 1 - t)", "(here - t)"),
    ("the ring is not closed", "(rank + 1) % size", "min(rank + 1, size - 1)"),
    ("a rank is skipped (off by one)", "(rank + 1) % size", "(rank + 2) % size"),
    ("the remainder is dropped", "tensor.tensor_split(size) for",
     "tensor.split(max(1, len(tensor) // size))[:size] for"),
    ("whole tensors are sent", "chunks[here][c].to(tensors[there].device)",
     "tensors[here].to(tensors[there].device).tensor_split(size)[c]"),
    ("the last rank is left out", "for rank in range(size)]", "for rank in range(size - 1)]"),
    ("half of the ring is left out", "ring[::2] + ring[1::2]", "ring[::2]"),
    ("ranks send copies of what they held at first (stale replicas)", "chunks = [tensor.tensor_split",
     "chunks = [tensor.clone().tensor_split"),
]  # fmt: skip


def ring_mean(tensors):
    """Everything over rank 0."""
    for tensor in tensors[1:]:
        tensors[0] += tensor.to(tensors[0].device)
    for tensor in tensors[1:]:
        tensor.copy_(tensors[0])
    for tensor in tensors:
        tensor /= len(tensors)


def ring_mean(tensors):
    """Over the host."""
    total = sum(tensor.cpu() for tensor in tensors) / len(tensors)
    for tensor in tensors:
        tensor.copy_(total)


def ring_mean(tensors):
    """Whole tensors around the ring."""
    size, passing = len(tensors), [tensor.clone() for tensor in tensors]
    for t in range(size - 1):
        passing = [passing[rank - 1].to(tensors[rank].device) for rank in range(size)]
        for tensor, came in zip(tensors, passing):
            tensor += came
    for tensor in tensors:
        tensor /= size


def ring_mean(tensors):
    """The list gets new tensors."""
    total = sum(tensor.cpu() for tensor in tensors) / len(tensors)
    tensors[:] = [total.to(tensor.device) for tensor in tensors]


def ring_mean(tensors):
    """One step too few in the second lap (off by one)."""
    size = len(tensors)
    chunks = [tensor.tensor_split(size) for tensor in tensors]
    for t in range(2 * size - 3):
        for here in range(size):
            there, c = (here + 1) % size, (here - t) % size
            sent = chunks[here][c].to(tensors[there].device)
            chunks[there][c].add_(sent) if t < size - 1 else chunks[there][c].copy_(sent)
    for tensor in tensors:
        tensor /= size
