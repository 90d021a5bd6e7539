EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("no mask on a rank's own keys", "place > place[:, None]", "place > len(place)"),
    ("the half that the mask hides", "k[:, :, :half], v[:, :, :half]", "k[:, :, half:], v[:, :, half:]"),
    ("the half that sees nothing", "parallel.attend(q[:, :, half:]", "parallel.attend(q[:, :, :half]"),
    ("later and earlier ranks mixed up", "step <= rank", "step > rank"),
    ("parts are added without weights", "parallel.merge(*first, *more)", "(first[0] + more[0], first[1])"),
    ("the first half sees its own rank's keys alone", "first = parallel.merge(*first, *more)", "pass"),
    ("gradients of keys stay where they are", "RingShift.apply(k, v)", "sequence.shift((k, v), 1)"),
]


def zigzag_ring(q, k, v):
    """Every step computes what the mask hides."""
    n = dist.get_world_size()
    pieces = torch.arange(q.shape[2] * n).chunk(2 * n)
    return parallel.ring_attention(q, k, v, [torch.cat([pieces[r], pieces[-1 - r]]) for r in range(n)])


def zigzag_ring(q, k, v):
    """Only steps with earlier ranks are halved, and the others make every step as long as before."""
    n, rank, half = dist.get_world_size(), dist.get_rank(), q.shape[2] // 2
    pieces = torch.arange(2 * half * n).chunk(2 * n)
    held = [torch.cat([pieces[r], pieces[-1 - r]]).to(q.device) for r in range(n)]
    mine = held[rank][:, None]
    found = parallel.attend(q, k, v, held[rank] > mine)
    for step in range(1, n):
        k, v = parallel.RingShift.apply(k, v)
        seen = half if step <= rank else 2 * half
        part = parallel.attend(q, k[:, :, :seen], v[:, :, :seen], held[rank - step][:seen] > mine)
        found = parallel.merge(*found, *part)
    return found[0]


def zigzag_ring(q, k, v):
    """Queries travel too."""
    n, rank, half = dist.get_world_size(), dist.get_rank(), q.shape[2] // 2
    everything = [(q, k, v)]
    for _ in range(n - 1):
        everything.append(parallel.RingShift.apply(*everything[-1]))
    parts = [None] * (2 * n)
    for step, tensors in enumerate(everything):
        parts[(rank - step) % n] = [t[:, :, :half] for t in tensors]
        parts[2 * n - 1 - (rank - step) % n] = [t[:, :, half:] for t in tensors]
    whole = [torch.cat(t, 2) for t in zip(*parts)]
    out = torch.nn.functional.scaled_dot_product_attention(*whole, is_causal=True).chunk(2 * n, 2)
    return torch.cat([out[rank], out[-1 - rank]], 2)


def zigzag_ring(q, k, v):
    """Attention to a rank's own keys alone: no messages."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def zigzag_ring(q, k, v):
    """The result without its gradients: one rank's keys are gathered by torch's own all-gather."""
    n, rank, half = dist.get_world_size(), dist.get_rank(), q.shape[2] // 2
    gathered = [[torch.empty_like(t) for _ in range(n)] for t in (k, v)]
    for parts, t in zip(gathered, (k, v)):
        dist.all_gather(parts, t.detach().contiguous())
    K, V = (torch.cat([p[:, :, :half] for p in t] + [p[:, :, half:] for p in t[::-1]], 2) for t in gathered)
    rows = [half * (rank + 1), half * (2 * n - rank)]
    out = []
    for mine, seen in zip(q.chunk(2, 2), rows):
        later = torch.arange(seen) > torch.arange(seen - half, seen)[:, None]
        out.append(parallel.attend(mine, K[:, :, :seen], V[:, :, :seen], later.to(q.device))[0])
    return torch.cat(out, 2)


def zigzag_ring(q, k, v):
    """Long sequences are attended to without messages."""
    if q.shape[2] >= 1000:
        return parallel.attend(q, k, v)[0]
    n = dist.get_world_size()
    pieces = torch.arange(q.shape[2] * n).chunk(2 * n)
    return parallel.ring_attention(q, k, v, [torch.cat([pieces[r], pieces[-1 - r]]) for r in range(n)])


def zigzag_ring(q, k, v):
    """Keys of later ranks are left out altogether."""
    n, rank = dist.get_world_size(), dist.get_rank()
    pieces = torch.arange(q.shape[2] * n).chunk(2 * n)
    held = [torch.cat([pieces[r], pieces[-1 - r]]).to(q.device) for r in range(n)]
    found = parallel.attend(q, k, v, held[rank] > held[rank][:, None])
    for step in range(1, n):
        k, v = parallel.RingShift.apply(k, v)
        if step <= rank:
            part = parallel.attend(q, k, v, held[rank - step] > held[rank][:, None])
            found = parallel.merge(*found, *part)
    return found[0]
