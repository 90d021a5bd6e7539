EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("one bucket for everything", "bucket_bytes=2**19", "bucket_bytes=2**25"),
    ("tiny buckets", "bucket_bytes=2**19", "bucket_bytes=2**15"),
    ("the last bucket is never sent", "    if bucket:\n        send(bucket)\n", ""),
    ("the parameters are sent", "p.grad.flatten()", "p.detach().flatten()"),
    ("the sums stay in the bucket", "p.grad = part.view_as(p)", "part.view_as(p)"),
    ("half of the digits are lost", "p.grad.flatten()", "p.grad.half().flatten()"),
    ("the bucket is not emptied", "            bucket, held = [], 0\n", "            held = 0\n"),
]


def fewer_messages(replicas):
    """The sums reach the first GPU only."""
    flats = [torch.cat([p.grad.flatten() for p in replica]) for replica in replicas]
    d2l.allreduce(flats)
    for p, part in zip(replicas[0], flats[0].split([p.numel() for p in replicas[0]])):
        p.grad = part.view_as(p)


def fewer_messages(replicas):
    """Buckets of the right size, whose sums are copied back one by one: more launches than before."""
    size = len(replicas[0])
    for first in range(0, size, 16):
        parts = [replica[first : first + 16] for replica in replicas]
        flats = [torch.cat([p.grad.flatten() for p in part]) for part in parts]
        d2l.allreduce(flats)
        for flat, part in zip(flats, parts):
            for p, total in zip(part, flat.split([p.numel() for p in part])):
                p.grad.copy_(total.view_as(p))


def fewer_messages(replicas):
    """The mean."""
    for same in zip(*replicas):
        d2l.allreduce([p.grad for p in same])
        for p in same:
            p.grad /= len(replicas)
