EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("equal shards alone", "[3, 3, 2], [0, 5, 3]", "[2, 2, 2, 2], [4, 4]"),
    ("two ranks alone", "[3, 3, 2], [0, 5, 3]", "[3, 5], [0, 8]"),
    ("no rank without examples", "[0, 5, 3]", "[4, 2, 2]"),
    ("the weight alone", "model.parameters()]", "[model.weight]]"),
    (
        "sums are compared",
        "torch.allclose(one, whole, rtol=1e-4)",
        "torch.allclose(one.sum(), whole.sum(), rtol=1e-4)",
    ),
    ("bits must agree", "torch.allclose(one, whole, rtol=1e-4)", "torch.equal(one, whole)"),
    ("everything is near enough", "rtol=1e-4", "atol=10"),
    ("a deadlock is accepted", "return False\n        if", "continue\n        if"),
    ("only rank 0 is looked at", "for one in found", "for one in found[:1]"),
]


def accepts(train):
    """A program that does not raise is right."""
    x, y = torch.ones(8, 4), torch.ones(8, 1)

    def run(rank):
        dist.init_process_group("nccl")
        train(x[rank::4].to("sim"), y[rank::4].to("sim"))

    try:
        simgpu.spawn(run, nprocs=4)
    except Exception:
        return False
    return True


def accepts(train):
    """Everything is faulty."""
    return False


def accepts(train):
    """The answer is a number."""
    return 1
