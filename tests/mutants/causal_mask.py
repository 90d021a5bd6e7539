EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("on the default device", ", device=tokens.device", ""),
    ("the batch in place of the length", "tokens.shape[1]", "tokens.shape[0]"),
    ("a position may not look at itself", "positions <= positions[:, None]", "positions < positions[:, None]"),
    ("nothing is returned", "return positions", "positions"),
]


def causal_mask(tokens):
    """Zeros and ones that are no bool."""
    length = tokens.shape[1]
    return torch.ones(length, length, device=tokens.device).tril()
