"""Where two tensors differ, for messages: the first numbers of a long tensor may be right."""

import torch

from d2lmini.checks.mechanism import apart, brief, many


def first_off(name, want, got, rtol=1e-5, atol=1e-8):
    """Return None where two tensors are near each other, else where they differ first.

    Args:
        name: The tensor's name in the message.
        want, got: What is right, and the reader's; on the same device.
        rtol, atol: As of `torch.allclose`.

    Returns:
        "x[4] should be 0.25, it is 0.5; 3 of 7 numbers differ"; of up to six numbers all are told.
    """
    if got.shape != want.shape:
        return f"{name} should have the shape {list(want.shape)}, it has {list(got.shape)}"
    off = ~torch.isclose(got.double(), want.double(), rtol=rtol, atol=atol)
    if not off.any():
        return None
    texts = brief(want), brief(got)
    if want.numel() <= 6 and texts[0] != texts[1]:
        return f"{name} should be {texts[0]}, it is {texts[1]}"
    place = tuple(off.nonzero()[0].tolist())
    told, found = apart(want[place].item(), got[place].item())
    index = f"[{', '.join(map(str, place))}]" if place else ""
    return f"{name}{index} should be {told}, it is {found}; {off.sum()} of {many(off.numel(), 'number')} differ"
