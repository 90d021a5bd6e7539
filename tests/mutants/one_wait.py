EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the result stays on the device", ".item()", ""),
    ("the sum", ".mean()", ".sum()"),
    ("the last one only", "torch.stack(losses)", "losses[-1]"),
    ("nothing is returned", "return ", ""),
]


def one_wait(losses):
    """Every loss is read."""
    return sum(loss.item() for loss in losses) / len(losses)


def one_wait(losses):
    """The sum is kept on the first GPU, wherever the losses are."""
    total = torch.zeros((), device="sim:0")
    for loss in losses:
        total += loss
    return total.item() / len(losses)


def one_wait(losses):
    """A copy that does not block is read at once."""
    return torch.stack(losses).mean().to("cpu", non_blocking=True).item()
