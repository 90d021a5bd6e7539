"""The checks of the labs on memory traffic: answers of other kinds than the book's pass, a better one too."""

import numpy as np
import torch

from d2lmini import checks


def one_kernel(w, m, g, lr, beta):
    options = {"weight_decay": 0.0, "momentum": beta, "lr": lr, "dampening": 0.0}
    flags = {"nesterov": False, "maximize": False, "is_first_step": False}
    torch._fused_sgd_([w], [g], [m], **options, **flags)


def in_slices(w, m, g, lr, beta):
    for w_part, m_part, g_part in zip(w, m, g):
        torch.add(g_part, m_part, alpha=beta, out=m_part)
        torch.sub(w_part, m_part, alpha=lr, out=w_part)
    return w


def test_other_right_answers_pass():
    assert "20 bytes move" in checks.momentum_step(one_kernel).sentence
    assert checks.momentum_step(one_kernel)
    assert checks.momentum_step(in_slices)


def test_the_bytes_are_told():
    def plain(w, m, g, lr, beta):
        m.copy_(beta * m + g)
        w.copy_(w - lr * m)

    assert "56 bytes move" in checks.momentum_step(plain).sentence


def swizzled(warp):  # no padding: the column is turned by the row
    lane = np.arange(32)
    for row in range(32):
        warp.put(32 * row + (lane ^ row), warp.load(32 * row + lane))
    for column in range(32):
        warp.store(32 * column + lane, warp.get(32 * lane + (column ^ lane)))


def turned_as_it_is_put(warp):  # in lists
    for row in reversed(range(32)):
        values = warp.load([32 * row + i for i in range(32)])
        warp.put([33 * i + row for i in range(32)], list(values))
    for column in range(32):
        warp.store(range(32 * column, 32 * column + 32), warp.get([33 * column + i for i in range(32)]))


def test_other_transpositions_pass():
    assert checks.transpose(swizzled)
    assert checks.transpose(turned_as_it_is_put)
