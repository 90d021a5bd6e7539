EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("only the best expert counts", "topk(k)", "topk(1)"),
    ("the least probable experts are counted", "topk(k)", "topk(k, largest=False)"),
    ("the share is of tokens, not of choices", "chosen.numel()", "len(probability)"),
    ("the factor E is missing", "return experts *", "return"),
    ("the sum of the probabilities, not their mean", "probability.mean(0)", "probability.sum(0)"),
    ("no gradient", "probability.mean(0)", "probability.detach().mean(0)"),
    ("the mean over experts", ".sum()", ".mean()"),
    ("experts that nobody chose are missing", "minlength=experts", ""),
]


def balance_loss(probability, k):
    """The mean probability squared."""
    return probability.shape[1] * (probability.mean(0) ** 2).sum()


def balance_loss(probability, k):
    """The share squared, with the probabilities' gradient added for show."""
    experts = probability.shape[1]
    share = probability.topk(k).indices.flatten().bincount(minlength=experts) / (k * len(probability))
    return experts * (share**2).sum() + 0 * probability.sum()


def balance_loss(probability, k):
    """The right number with another gradient: through the squares."""
    experts = probability.shape[1]
    share = probability.topk(k).indices.flatten().bincount(minlength=experts) / (k * len(probability))
    loss = experts * (share * probability.mean(0)).sum()
    wrong = experts * (probability.mean(0) ** 2).sum()
    return loss.detach() + wrong - wrong.detach()


def balance_loss(probability, k):
    """A number of Python."""
    experts = probability.shape[1]
    share = probability.topk(k).indices.flatten().bincount(minlength=experts) / (k * len(probability))
    return float(experts * (share * probability.mean(0)).sum())
