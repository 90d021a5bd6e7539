"""The lab on decoding with a cache: right answers of other kinds than the book's pass, better ones too."""

import pytest
import torch

from d2lmini import checks


def folded_weights(prompt, count, E, Wq, Wk, Wv):
    """The rows of the tokens are cached: keys and values are never computed."""
    scores, outputs, X, found = Wq @ Wk.T / E.shape[1] ** 0.5, Wv @ E.T, E[prompt], []
    for _ in range(count):
        weights = (X[-1:] @ scores @ X.T).softmax(1)
        found.append((weights @ X @ outputs).argmax(1))
        X = torch.cat([X, E[found[-1]]])
    return torch.cat(found)


def whole_vocabulary(prompt, count, E, Wq, Wk, Wv):
    Q, K, V, tokens = E @ Wq, E @ Wk, E @ Wv, prompt
    for _ in range(count):
        weights = (Q[tokens[-1:]] @ K[tokens].T / E.shape[1] ** 0.5).softmax(1)
        tokens = torch.cat([tokens, (weights @ V[tokens] @ E.T).argmax(1)])
    return tokens[len(prompt) :]


def reserved(prompt, count, E, Wq, Wk, Wv):
    """The cache's memory is there beforehand."""
    end, x, found = len(prompt), E[prompt], []
    K, V = (E.new_empty(end + count, E.shape[1]) for _ in range(2))
    K[:end], V[:end] = x @ Wk, x @ Wv
    for i in range(end, end + count):
        weights = (x[-1:] @ Wq @ K[:i].T / E.shape[1] ** 0.5).softmax(1)
        found.append((weights @ V[:i] @ E.T).argmax(1))
        x = E[found[-1]]
        K[i : i + 1], V[i : i + 1] = x @ Wk, x @ Wv
    return torch.cat(found)


@pytest.mark.parametrize("answer", [folded_weights, whole_vocabulary, reserved])
def test_other_right_answers_pass(answer):
    assert checks.generate(answer)
