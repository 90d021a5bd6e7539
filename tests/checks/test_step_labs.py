"""Labs on the cost of a step: right answers of other kinds than the book's pass, better ones too."""

import pytest
import torch
from torch.nn import functional as F

from d2lmini import checks


def by_einsum(X, W1, W2):
    hidden = F.relu(torch.einsum("bd,ndh->nbh", X, W1))
    return torch.einsum("nbh,nhc->bc", hidden, W2) / len(W1)


def by_vmap(X, W1, W2):
    return torch.func.vmap(lambda a, b: F.relu(X @ a) @ b)(W1, W2).mean(0)


def one_wide_network(X, W1, W2):
    networks, inputs, hidden = W1.shape
    wide = W1.transpose(0, 1).reshape(inputs, networks * hidden)
    return F.relu(X @ wide) @ W2.flatten(0, 1) / networks


@pytest.mark.parametrize("answer", [by_einsum, by_vmap, one_wide_network])
def test_ensemble_passes_whatever_makes_the_kernels_few(answer):
    assert checks.ensemble(answer)
