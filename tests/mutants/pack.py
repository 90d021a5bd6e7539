EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("all go to the first GPU", "flat.to(device)", "flat.to('sim:0')"),
    ("the last tensor is dropped (off by one)", "zip(pieces, tensors)", "zip(pieces, tensors[:-1])"),
    ("copied out and back in", "p.view(t.shape)", "p.view(t.shape).cpu().to(device)"),
    ("the numbers change their type", "flat.to(device)", "flat.to(device).double()"),
    ("all numbers become float32", "tensor.reshape(-1) for", "tensor.reshape(-1).float() for"),
    ("each is laid out backwards", "tensor.reshape(-1)", "tensor.reshape(-1).flip(0)"),
]


def pack(tensors, device):
    """Equal pieces, padded to the largest."""
    longest = max(t.numel() for t in tensors)
    rows = torch.zeros(len(tensors), longest)
    for row, t in zip(rows, tensors):
        row[: t.numel()] = t.reshape(-1)
    return [row[: t.numel()].view(t.shape) for row, t in zip(rows.to(device), tensors)]


def pack(tensors, device):
    """Python's lists forget the numbers' type."""
    flat = torch.tensor([x for t in tensors for x in t.flatten().tolist()]).to(device)
    return [p.view(t.shape) for p, t in zip(flat.split([t.numel() for t in tensors]), tensors)]
