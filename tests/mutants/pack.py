"""Wrong answers to the exercise pack, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("everything stays where it was", "flat.to(device).split", "flat.split"),
    ("all go to the first GPU", "flat.to(device)", "flat.to('sim:0')"),
    ("the shapes are lost", "p.view(t.shape)", "p"),
    ("the pieces come in reverse", "zip(pieces, tensors)", "zip(pieces[::-1], tensors)"),
    ("the last tensor is dropped (off by one)", "zip(pieces, tensors)", "zip(pieces, tensors[:-1])"),
    ("the first piece throughout (stale)", "p.view(t.shape)", "pieces[0].view(t.shape)"),
    ("each is copied before they are put together", "[tensor.reshape(-1) for", "[tensor.reshape(-1).to(device) for"),
    ("copied out and back in", "p.view(t.shape)", "p.view(t.shape).cpu().to(device)"),
    ("the numbers change their type", "flat.to(device)", "flat.to(device).double()"),
    ("more is sent than there is", "torch.cat([", "torch.cat([torch.zeros(0)] + 2 * ["),
    ("each is laid out backwards", "tensor.reshape(-1)", "tensor.reshape(-1).flip(0)"),
    ("nothing is returned", "return [p.view", "[p.view"),
]


def pack(tensors, device):
    """One at a time, without waiting."""
    return [tensor.pin_memory().to(device, non_blocking=True) for tensor in tensors]


def pack(tensors, device):
    """Equal pieces, padded to the largest."""
    longest = max(t.numel() for t in tensors)
    rows = torch.zeros(len(tensors), longest)
    for row, t in zip(rows, tensors):
        row[: t.numel()] = t.reshape(-1)
    return [row[: t.numel()].view(t.shape) for row, t in zip(rows.to(device), tensors)]


def pack(tensors, device):
    """The inputs are overwritten."""
    flat = torch.cat([t.reshape(-1) for t in tensors]).to(device)
    pieces = [p.view(t.shape) for p, t in zip(flat.split([t.numel() for t in tensors]), tensors)]
    tensors.clear()
    return pieces
