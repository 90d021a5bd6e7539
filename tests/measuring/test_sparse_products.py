"""A matrix of few numbers: the list stands for the same matrix, with as many numbers as asked for."""

import torch

from d2lmini.measuring.sparse_products import left_and_right, measure_here


def test_the_list_is_the_matrix_without_its_zeros():
    few, B = left_and_right(0.1, 200, 3)
    whole, _ = left_and_right(1, 200, 3)
    kept = few.to_dense() != 0
    assert few.layout == torch.sparse_csr
    assert 0.09 < kept.double().mean() < 0.11
    torch.testing.assert_close(few @ B, (whole * kept) @ B)


def test_a_product_takes_time_at_each_density():
    found = measure_here([1, 0.5])
    assert torch.get_num_threads() == 1
    assert list(found) == [1, 0.5]
    assert min(found.values()) > 0
