EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the line that loads", 'line="C"', 'line="D"'),
    ("every rank's state on GPU 0, where it was saved", ', map_location="cpu"', ""),
    ("every rank's state on GPU 0, said so", 'map_location="cpu"', 'map_location="cuda:0"'),
    ("the moments begin anew", '    optimizer.load_state_dict(state["optimizer"])\n', ""),
    ("the weights begin anew", '    model.module.load_state_dict(state["model"])\n', ""),
]


def resume(model, path):
    """DDP broadcasts the weights of rank 0, and the moments stay there."""
    from torch.distributed import get_rank

    optimizer = torch.optim.AdamW(model.parameters())
    if get_rank() == 0:
        state = torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    return DDP(model), optimizer


def resume(model, path):
    """The model is not DDP's, so that every rank trains alone."""
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(state["optimizer"])
    return model, optimizer
