"""The checks on replicas accept right answers of other kinds, and refuse what only looks right."""

from itertools import combinations, product

import numpy as np

from d2lmini import checks


def test_pairs_of_tensors_and_a_truth_of_numpy(capsys):
    def pairs(replicas):
        storages = [[t.untyped_storage().data_ptr() for t in replica] for replica in replicas]
        return np.any([a == b for one, other in combinations(storages, 2) for a, b in product(one, other)])

    assert checks.share_memory(pairs)


def test_a_number_of_tensors_is_no_truth(capsys):
    assert "expected True or False" in checks.share_memory(lambda replicas: len(replicas)).sentence


def test_bytes_in_an_array(capsys):
    assert checks.allreduce_bytes(lambda nbytes, devices: np.array([2, 1]) * (devices - 1) * nbytes)
