"""Where two tensors differ, for messages: the first numbers of a long tensor may be right."""

import torch

from d2lmini.checks.mechanism import apart, many


def first_off(name, want, got, rtol=1e-5, atol=1e-8):
    """Return None where two tensors are near each other, else where they differ first.

    Args:
        name: The tensor's name in the message.
        want, got: What is right, and the reader's; on the same device.
        rtol, atol: As of `torch.allclose`.

    Returns:
        "x[4] should be 0.25, it is 0.5; 3 of 7 numbers differ".
    """
    if got.shape != want.shape:
        return f"{name} should have the shape {list(want.shape)}, it has {list(got.shape)}"
    want, got = want.double(), got.double()
    off = ~torch.isclose(got, want, rtol=rtol, atol=atol)
    if not off.any():
        return None
    place = tuple(off.nonzero()[0].tolist())
    told, found = apart(want[place].item(), got[place].item())
    index = f"[{', '.join(map(str, place))}]" if place else ""
    count = f"; {off.sum()} of {many(off.numel(), 'number')} differ" if off.numel() > 1 else ""
    return f"{name}{index} should be {told}, it is {found}{count}"
