EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum is not divided", "        tensor /= size\n", "        pass\n"),
    (
        "the remainder is dropped",
        "tensor.tensor_split(size) for",
        "tensor.split(max(1, len(tensor) // size))[:size] for",
    ),
    (
        "whole tensors are sent",
        "chunks[here][c].to(tensors[there].device)",
        "tensors[here].to(tensors[there].device).tensor_split(size)[c]",
    ),
    ("half of the ring is left out", "ring[::2] + ring[1::2]", "ring[::2]"),
    ("not in place: the tensors get other memory", "        tensor /= size\n", "        tensor.data = tensor / size\n"),
]


def ring_mean(tensors):
    """Over the host."""
    total = sum(tensor.cpu() for tensor in tensors) / len(tensors)
    for tensor in tensors:
        tensor.copy_(total)


def ring_mean(tensors):
    """The list gets new tensors."""
    total = sum(tensor.cpu() for tensor in tensors) / len(tensors)
    tensors[:] = [total.to(tensor.device) for tensor in tensors]


def ring_mean(tensors):
    """Whole tensors around the ring."""
    size, passing = len(tensors), [tensor.clone() for tensor in tensors]
    for t in range(size - 1):
        passing = [passing[rank - 1].to(tensors[rank].device) for rank in range(size)]
        for tensor, came in zip(tensors, passing):
            tensor += came
    for tensor in tensors:
        tensor /= size
