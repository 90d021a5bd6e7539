"""The checks on shards and buckets accept right answers of other kinds, and refuse what only looks right."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from d2lmini import checks


def bounds(X, y, k):
    n = len(X)
    if len(y) != n or n < k:
        raise ValueError(f"{n} examples and {len(y)} labels for {k} devices")
    cuts = np.cumsum([0] + [n // k + (i < n % k) for i in range(k)])
    return list(pairwise(cuts))


@pytest.mark.parametrize("join", [list, tuple])
def test_slices_at_numpy_integers_in_lists_or_tuples(join):
    def split(X, y, devices):
        places = bounds(X, y, len(devices))
        return join(join(t[a:b].to(device) for (a, b), device in zip(places, devices)) for t in (X, y))

    assert checks.split_batch(split)


def test_shards_joined_from_single_examples():
    def split(X, y, devices):
        places = bounds(X, y, len(devices))
        return [[torch.stack([t[i] for i in range(a, b)]).to(device) for (a, b), device in zip(places, devices)]
                for t in (X, y)]  # fmt: skip

    assert checks.split_batch(split)


@pytest.mark.parametrize("cut", ["tensor_split", "chunk"])
def test_the_functions_that_split_are_named(cut):
    sentence = checks.split_batch(lambda X, y, devices: [getattr(t, cut)(len(devices)) for t in (X, y)]).sentence
    assert f"called {cut}" in sentence


def test_a_mean_through_a_stack_of_weighted_gradients():
    def mean(gradients, sizes):
        weights = torch.tensor(sizes, dtype=torch.float64) / np.sum(sizes)
        return torch.tensordot(weights, torch.stack(gradients).double(), dims=1).to(gradients[0].dtype)

    assert checks.mean_gradient(mean)


@pytest.mark.parametrize(("turned", "kind"), [(torch.Tensor.tolist, "list"), (torch.Tensor.numpy, "ndarray")])
def test_a_mean_that_is_no_tensor_is_told_with_its_type(turned, kind):
    def mean(gradients, sizes):
        return turned(sum(n * g for n, g in zip(sizes, gradients)) / sum(sizes))

    assert checks.mean_gradient(mean).sentence.endswith(f"({kind})")


def plan(sizes, limit):
    buckets = []
    for place in reversed(range(len(sizes))):
        if not buckets or sum(sizes[other] for other in buckets[-1]) + sizes[place] > limit:
            buckets.append([])
        buckets[-1].append(place)
    return buckets


@pytest.mark.parametrize("turned", [tuple, np.array, torch.tensor, lambda bucket: list(map(np.int64, bucket)),
                                    lambda bucket: list(map(float, bucket)),
                                    lambda bucket: range(bucket[0], bucket[-1] - 1, -1)])  # fmt: skip
def test_buckets_in_any_form(turned):
    assert checks.bucket_plan(lambda sizes, limit: tuple(map(turned, plan(sizes, limit))))


def test_wrong_buckets_of_floats_are_told_what_is_wrong():
    verdict = checks.bucket_plan(lambda sizes, limit: [np.arange(len(sizes) - 1.0, -1, -1)])
    assert "more than 16 bytes" in verdict.sentence


@pytest.mark.parametrize(("turned", "kind"), [(str, "str"), (lambda found: dict(enumerate(found)), "dict"),
                                              (lambda found: [list(map(str, b)) for b in found], "list")])  # fmt: skip
def test_what_are_no_buckets_is_told_with_its_type(turned, kind):
    assert checks.bucket_plan(lambda sizes, limit: turned(plan(sizes, limit))).sentence.endswith(f"({kind})")


def hooks(join, number=int):
    """Return a right bucket_hook that launches with its gradients in what `join` makes of them."""

    def bucket_hook(parameters, buckets, launch):
        waiting = [set(bucket) for bucket in buckets]

        def ready(place):
            for i, bucket in enumerate(buckets):
                if place in waiting[i]:
                    waiting[i].remove(place)
                    if not waiting[i]:
                        waiting[i].update(bucket)
                        launch(number(i), join(parameters[other].grad for other in bucket))

        for place, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(lambda _, place=place: ready(place))

    return bucket_hook


@pytest.mark.parametrize("join", [list, tuple, iter])
@pytest.mark.parametrize("number", [int, np.int64, torch.tensor, float])
def test_a_hook_with_gradients_and_numbers_in_any_form(join, number):
    assert checks.bucket_hook(hooks(join, number))


@pytest.mark.parametrize(("join", "told"), [
    (lambda gradients: torch.cat([g.flatten() for g in gradients]), "expected 2 gradients in bucket 0"),
    (lambda gradients: list(gradients)[::-1], "in this order"),
    (lambda gradients: [0 * g for g in gradients], "numbers are others"),
    (lambda gradients: [None for _ in gradients], "got [None, None]"),
])  # fmt: skip
def test_a_hook_that_sends_something_else_is_told(join, told):
    assert told in checks.bucket_hook(hooks(join)).sentence


def test_numbers_that_are_none_are_told():
    assert "in this order, got ['0', '1']" in checks.bucket_hook(hooks(list, str)).sentence


def test_a_bucket_that_goes_off_too_early_is_told():
    def bucket_hook(parameters, buckets, launch):
        for number, bucket in enumerate(buckets):
            def ready(_, number=number, bucket=bucket):
                launch(number, [parameters[place].grad for place in bucket])

            parameters[bucket[-1]].register_post_accumulate_grad_hook(ready)

    assert "before the gradient of 0 was there" in checks.bucket_hook(bucket_hook).sentence


def test_an_incoming_gradient_is_wrong_where_gradients_add_up():
    def bucket_hook(parameters, buckets, launch):
        here = {}

        def ready(place, gradient):
            here[place] = gradient
            for number, bucket in enumerate(buckets):
                if place in bucket and here.keys() >= set(bucket):
                    launch(number, [here.pop(other) for other in bucket])

        for place, parameter in enumerate(parameters):
            parameter.register_hook(lambda gradient, place=place: ready(place, gradient))

    assert "which adds to the gradients of the step before" in checks.bucket_hook(bucket_hook).sentence


def test_moments_by_the_mean_of_squares(capsys):
    def squares(counts, means, variances):
        share = torch.tensor(counts, dtype=torch.float64) / sum(counts)
        mean = share @ torch.stack(means)
        return [mean, share @ (torch.stack(variances) + torch.stack(means) ** 2) - mean**2]

    assert checks.joined_moments(squares)


def test_the_spread_of_the_means_is_named(capsys):
    def plain(counts, means, variances):
        total = sum(counts)
        return sum(n * m for n, m in zip(counts, means)) / total, sum(variances) / len(variances)

    assert "means lie apart" in checks.joined_moments(plain).sentence


def test_bytes_as_integers_in_an_array(capsys):
    def whole(parameters, outputs, gpus):
        return np.array([(gpus - 1) * (outputs // gpus + parameters), 2 * parameters * (gpus - 1) // gpus])

    assert checks.first_gpu_bytes(whole)
