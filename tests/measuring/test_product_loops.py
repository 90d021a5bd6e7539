"""Products by loops, measured: every way is timed, in a process of its own."""

import pytest

from d2lmini.measuring import product_loops


@pytest.mark.process
def test_every_way_is_measured_in_a_process_that_is_not_held_back(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    seconds, where = product_loops.measured(40, 16)
    assert {len(measurement.seconds) for measurement in seconds.values()} == {6}
    assert {"ijk", "ikj", "ikj in copied tiles", "torch"} <= set(seconds)
    assert where.startswith("measured on ")
    assert "MKL_CBWR" not in where


def test_a_wrong_product_is_not_measured(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(product_loops, "loops_ikj", lambda A, B, C: C.fill(1))
    monkeypatch.setattr(product_loops, "compiled", lambda function: function)
    with pytest.raises(RuntimeError, match="wrong product"):
        product_loops.measure_here(8, 4, 6)
