EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the result stays on the device", ".item()", ""),
    ("the sum", ".mean()", ".sum()"),
    ("the last one only", "torch.stack(losses)", "losses[-1]"),
    ("nothing is returned", "return ", ""),
]


def one_wait(losses):
    """Every loss is read."""
    return sum(loss.item() for loss in losses) / len(losses)
