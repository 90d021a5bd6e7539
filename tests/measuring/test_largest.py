"""The search that the chapter on working sets defines."""

import pytest


@pytest.mark.parametrize("limit", [2**30, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9, 100, 1023])
def test_largest(taught, n, limit):
    largest, asked = taught("working-sets", "largest"), []

    def fits(batch):
        asked.append(batch)
        return batch <= n

    assert largest(fits, limit) == min(n, limit)
    assert len(asked) <= 2 * n.bit_length() + 1
    assert 0 not in asked
    assert max(asked) <= limit
    asked.clear()
    assert largest(fits, limit, good=min(n, 2)) == min(n, limit)
    assert min(asked) > min(n, 2)
