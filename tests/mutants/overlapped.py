EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum (not the mean)", "flat /= dist.get_world_size()", "flat /= 1"),
    ("one bucket for everything", "bucket_bytes=2**20", "bucket_bytes=2**40"),
    ("a message for each parameter", "bucket_bytes=2**20", "bucket_bytes=1"),
    ("nobody waits for the all-reduce", "work.wait()", "pass"),
    (
        "parameters are averaged (not gradients)",
        "[p.grad.flatten() for p in bucket]",
        "[p.detach().flatten() for p in bucket]",
    ),
    (
        "large gradients stay as they are",
        "for p in net.parameters():",
        "for p in [p for p in net.parameters() if p.numel() < 9999]:",
    ),
    ("the last bucket is never sent", "if bucket:", "if bucket.clear():"),
]


def overlapped(net):
    """Each gradient is summed when it is ready, and backward waits for it."""

    def ready(p):
        p.grad /= dist.get_world_size()
        dist.all_reduce(p.grad)

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(ready)
    return lambda: None


def overlapped(net):
    """The mean over two ranks, whatever their number."""

    def finish():
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= 2

    return finish


def overlapped(net):
    """Nothing is returned."""
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
