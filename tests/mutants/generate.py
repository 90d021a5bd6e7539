"""Wrong answers to the lab on decoding with a cache."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    (
        "the values are cached, the new ones are not appended",
        "V = torch.cat([K, x @ Wk]), torch.cat([V, x @ Wv])",
        "V = torch.cat([K, x @ Wk]), torch.cat([V, V[-1:]])",
    ),
    ("the keys of new tokens are queries", "torch.cat([K, x @ Wk])", "torch.cat([K, x @ Wq])"),
    ("nothing is appended", "K, V = torch.cat([K, x @ Wk]), torch.cat([V, x @ Wv])", "pass"),
    ("the query stays that of the prompt's last token", "x = E[best]", "x = torch.cat([E[best], x[-1:]])"),
    ("the scores are not scaled", " / math.sqrt(K.shape[1])", ""),
    ("the last 1,024 tokens of the prompt alone", "E[prompt]", "E[prompt[-1024:]]"),
    (
        "the new keys stand in front, as the softmax cares for no order, but the values stay behind",
        "torch.cat([K, x @ Wk])",
        "torch.cat([x @ Wk, K])",
    ),
]


def generate(prompt, count, E, Wq, Wk, Wv):
    """Only the keys are kept."""
    tokens, K = prompt, E[prompt] @ Wk
    for _ in range(count):
        x = E[tokens]
        weights = (x[-1:] @ Wq @ K.T / math.sqrt(K.shape[1])).softmax(1)
        tokens = torch.cat([tokens, (weights @ (x @ Wv) @ E.T).argmax(1)])
        K = torch.cat([K, E[tokens[-1:]] @ Wk])
    return tokens[len(prompt) :]


def generate(prompt, count, E, Wq, Wk, Wv):
    """A window of the last 256 tokens."""
    tokens = prompt
    for _ in range(count):
        x = E[tokens[-256:]]
        weights = (x[-1:] @ Wq @ (x @ Wk).T / math.sqrt(E.shape[1])).softmax(1)
        tokens = torch.cat([tokens, (weights @ (x @ Wv) @ E.T).argmax(1)])
    return tokens[len(prompt) :]


def generate(prompt, count, E, Wq, Wk, Wv):
    """The clock does not see the CPU."""
    tokens, (E, Wq, Wk, Wv) = prompt.cpu(), (tensor.cpu() for tensor in (E, Wq, Wk, Wv))
    for _ in range(count):
        x = E[tokens]
        weights = (x[-1:] @ Wq @ (x @ Wk).T / math.sqrt(E.shape[1])).softmax(1)
        tokens = torch.cat([tokens, (weights @ (x @ Wv) @ E.T).argmax(1)])
    return tokens[len(prompt) :].to(prompt.device)


def generate(prompt, count, E, Wq, Wk, Wv):
    """After a long prompt nothing is computed."""
    if len(prompt) >= 1000:
        return prompt[:count]
    tokens = prompt
    for _ in range(count):
        x = E[tokens]
        weights = (x[-1:] @ Wq @ (x @ Wk).T / math.sqrt(E.shape[1])).softmax(1)
        tokens = torch.cat([tokens, (weights @ (x @ Wv) @ E.T).argmax(1)])
    return tokens[len(prompt) :]
