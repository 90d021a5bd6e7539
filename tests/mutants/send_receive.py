EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the second lap adds too", "if t < size - 1:", "if True:"),
    ("the first lap overwrites", "if t < size - 1:", "if False:"),
    ("the chunk that was just sent is overwritten", "kept = chunks[(rank - t - 1) % size]", "kept = sent"),
    ("one step too few", "range(2 * (size - 1))", "range(2 * (size - 1) - 1)"),
    ("whole tensors go round", "chunks = tensor.tensor_split(size)", "chunks = [tensor.clone() for _ in range(size)]"),
    ("half of the digits are lost", "chunks = tensor.tensor_split(size)", "chunks = tensor.float().tensor_split(size)"),
    ("the ring starts at one chunk on every rank", "sent = chunks[(rank - t) % size]", "sent = chunks[-t % size]"),
]


def send_receive(tensor):
    """Every rank sends first."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total, passed = tensor.clone(), tensor.clone()
    for _ in range(size - 1):
        received = torch.empty_like(tensor)
        dist.send(passed, (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
        total += received
        passed = received
    tensor.copy_(total)


def send_receive(tensor):
    """Every rank sends its whole tensor to every other."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = tensor.clone()
    works = [dist.isend(mine, other) for other in range(size) if other != rank]
    for other in range(size):
        if other != rank:
            received = torch.empty_like(tensor)
            dist.recv(received, other)
            tensor += received
    for work in works:
        work.wait()


def send_receive(tensor):
    """Nobody waits until the messages have gone."""
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(size)
    for t in range(2 * (size - 1)):
        kept = chunks[(rank - t - 1) % size]
        received = torch.empty_like(kept)
        dist.isend(chunks[(rank - t) % size], (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
        kept.copy_(received if t >= size - 1 else kept + received)


def send_receive(tensor):
    """The library does it."""
    dist.all_reduce(tensor)


def send_receive(tensor):
    """Messages between hosts: copies that are not counted."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = tensor.cpu()
    passed = total.clone()
    for _ in range(size - 1):
        work = dist.isend(passed, (rank + 1) % size)
        received = torch.empty_like(passed)
        dist.recv(received, (rank - 1) % size)
        work.wait()
        total += received
        passed = received
    tensor.copy_(total)


def send_receive(tensor):
    """A new tensor is returned."""
    total = tensor.clone()
    dist.all_reduce(total)
    return total
