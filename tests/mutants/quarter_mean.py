EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("no feedback", "due = gradient + unsent", "due = gradient + 0"),
    ("the codes are left unsent, not the rest", "due - codes * scale", "codes * scale"),
    ("the feedback has the wrong sign", "due - codes * scale", "codes * scale - due"),
    ("the sum, not the mean", ".mean(0)", ".sum(0)"),
    ("codes are added up without their scales", "gathered(codes) * gathered(scale)", "gathered(codes).float()"),
    ("own scale for everybody's codes", "* gathered(scale)", "* scale"),
    ("the mean in float16", ".mean(0)", ".mean(0).half()"),
]


def quarter_mean(gradient, unsent):
    """A rank adds its own gradient unrounded."""
    due = gradient + unsent
    scale = (due.abs().max() / 127).clamp(min=1e-30).view(1)
    codes = torch.round(due / scale).to(torch.int8)
    parts = gathered(codes) * gathered(scale)
    parts[dist.get_rank()] = due
    return parts.mean(0), due - codes * scale


def quarter_mean(gradient, unsent):
    """16 bits."""
    due = gradient + unsent
    short = due.bfloat16()
    dist.all_reduce(short)
    return short.float() / dist.get_world_size(), due - due.bfloat16()


def quarter_mean(gradient, unsent):
    """A tenth of the numbers, the largest, which is too few."""
    due = gradient + unsent
    places = due.abs().topk(max(1, len(due) // 10)).indices
    sent = torch.zeros_like(due).index_copy(0, places, due[places])
    values, where = gathered(due[places]), gathered(places.int())
    mean = sum(torch.zeros_like(due).index_copy(0, w.long(), v) for v, w in zip(values, where)) / len(values)
    return mean, due - sent


def quarter_mean(gradient, unsent):
    """Nothing is sent: each rank takes its own gradient for the mean."""
    return gradient, unsent
