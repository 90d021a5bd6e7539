EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the rank that waits is named", "rank=2", "rank=3"),
    ("the line that waits is named", 'line="C"', 'line="E"'),
    ("the message's own line is named", 'line="C"', 'line="D"'),
    ("nothing is named", ', rank=2, line="C"', ""),
    (
        "the receiver decides from its own chunk",
        "dist.recv(received, left)",
        "kept.any() and dist.recv(received, left)",
    ),
    (
        "all wait, and the message is still left out",
        "works.append(dist.isend(sent, right))",
        "works += [dist.isend(sent, right)] if sent.any() else []\n        dist.barrier()",
    ),
    ("whole tensors are sent", "tensor.tensor_split(size)", "[tensor.clone() for _ in range(size)]"),
]


def ring_sum(tensor):
    """The library does it."""
    dist.all_reduce(tensor)


def ring_sum(tensor):
    """Both skip what is zero on any rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = tensor.tensor_split(size)
    for t in range(2 * (size - 1)):
        sent = chunks[(rank - t) % size]
        kept = chunks[(rank - t - 1) % size]
        used = sent.any().float()
        dist.all_reduce(used)
        if used < size:
            continue
        work = dist.isend(sent, right)
        received = torch.empty_like(kept)
        dist.recv(received, left)
        work.wait()
        kept.copy_(kept + received if t < size - 1 else received)
