# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("only where a tensor itself begins", "t.untyped_storage().data_ptr()", "t.data_ptr()"),
    ("tensors as objects", "t.untyped_storage().data_ptr()", "id(t)"),
    ("numbers, not memory", "t.untyped_storage().data_ptr()", "t.sum().item()"),
    (
        "a tensor used twice counts",
        "{t.untyped_storage().data_ptr() for t in replica if t.numel()}",
        "[t.untyped_storage().data_ptr() for t in replica if t.numel()]",
    ),
    (
        "how many, not whether",
        "return len(set().union(*places)) < sum(len(own) for own in places)",
        "return sum(len(own) for own in places) - len(set().union(*places))",
    ),
]


def share_memory(replicas):
    """Takes a tensor that is no view of another for its own memory: a detached one is none."""
    places = [{id(t if t._base is None else t._base) for t in replica} for replica in replicas]
    return len(set().union(*places)) < sum(len(own) for own in places)


def share_memory(replicas):
    """Takes all empty tensors, whose address is 0, for one."""
    places = [{t.untyped_storage().data_ptr() for t in replica} for replica in replicas]
    return len(set().union(*places)) < sum(len(own) for own in places)


def share_memory(replicas):
    """Compares each replica with the next one alone."""
    places = [{t.untyped_storage().data_ptr() for t in replica} for replica in replicas]
    return any(places[i] & places[i + 1] for i in range(len(places) - 1))


def share_memory(replicas):
    """Compares the tensors of one place alone: the weights with weights, the biases with biases."""
    columns = [[t.untyped_storage().data_ptr() for t in column] for column in zip(*replicas)]
    return any(len(set(column)) < len(column) for column in columns)
