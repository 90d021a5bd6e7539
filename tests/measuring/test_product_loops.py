"""Loops of a product against torch's: what computes something else is not measured; the rest a chapter shows."""

import pytest

from d2lmini.measuring import product_loops


def test_a_wrong_product_is_not_measured(monkeypatch):
    monkeypatch.setattr(product_loops, "loops_ikj", lambda A, B, C: C.fill(1))
    monkeypatch.setattr(product_loops, "compiled", lambda function: function)
    with pytest.raises(RuntimeError, match="wrong product"):
        product_loops.measure_here(8, 4, 6)
