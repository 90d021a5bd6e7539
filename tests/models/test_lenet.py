"""LeNet: parameters against module, shapes against the formula, the initialisation against its scale."""

import math

import pytest
import torch

from d2lmini.models.lenet import LENET_SHAPES, MODELS, LeNet, he, lenet, lenet_params


def test_shapes_and_count():
    params = lenet_params()
    assert [tuple(p.shape) for p in params] == list(LENET_SHAPES)
    assert sum(p.numel() for p in params) == 129_068
    assert all(p.dtype == torch.float32 for p in params)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_parameters_and_module_are_the_same_network(n):
    X = torch.rand(n, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(lenet(X, lenet_params(seed=3)), LeNet(seed=3)(X))
    assert lenet(X, lenet_params()).shape == (n, 10)


def test_initialisation_scales_and_is_reproducible():
    for p, fan_in in zip(lenet_params()[::2], (9, 500, 800, 128), strict=True):
        assert p.std().item() == pytest.approx(math.sqrt(2 / fan_in), rel=0.12)
    for p in lenet_params(std=lambda fan_in: 0.01)[::2]:
        assert p.std().item() == pytest.approx(0.01, rel=0.12)
    assert all(torch.equal(p, q) for p, q in zip(lenet_params(), lenet_params(he, 0), strict=True))
    assert not torch.equal(lenet_params(seed=0)[0], lenet_params(seed=1)[0])
    assert all(not p.any() for p in lenet_params()[1::2])


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    lenet_params()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [(1, 32, 32), (1, 56, 14), (3, 28, 28), (784,)], ids=str)
def test_images_of_another_shape_are_told(model, shape):
    with pytest.raises(ValueError, match=r"\[n, 1, 28, 28\]"):
        MODELS[model](seed=0)(torch.zeros(2, *shape))
