from dataclasses import replace

import pytest

from d2lmini.hardware import costs
from d2lmini.hardware.catalog import GPUS, LINKS
from d2lmini.hardware.costs import copy_seconds, operation_seconds, padded, peak_flops_per_s

V100, A100, GTX = GPUS["V100-SXM2-16GB"], GPUS["A100-SXM4-40GB"], GPUS["GTX 980"]
KINDS = [*costs.ARITHMETIC, *costs.MEMORY]


def test_arithmetic_decides_when_there_is_much_of_it():
    assert operation_seconds(15.7e12, 1, V100, "gemm") == pytest.approx(costs.KERNEL_S + 1 / costs.ARITHMETIC["gemm"])


def test_traffic_decides_when_there_is_little_arithmetic():
    expected = costs.KERNEL_S + 1 / costs.MEMORY["pointwise"]
    assert operation_seconds(1, 898.6e9, V100, "pointwise") == pytest.approx(expected)
    assert operation_seconds(1, 898.6e9, V100, "gemm") == pytest.approx(expected)


def test_arithmetic_and_traffic_overlap():
    both = operation_seconds(15.7e12, 898.6e9, V100, "gemm")
    assert both == max(operation_seconds(15.7e12, 0, V100, "gemm"), operation_seconds(0, 898.6e9, V100, "gemm"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_nothing_costs_the_fixed_part_and_more_never_costs_less(gpu, kind):
    sizes = [0, 1, 1e6, 1e12]
    assert operation_seconds(0, 0, gpu, kind) == costs.KERNEL_S
    for series in ([operation_seconds(n, 1e6, gpu, kind) for n in sizes],
                   [operation_seconds(1e6, n, gpu, kind) for n in sizes]):  # fmt: skip
        assert series == sorted(series)


def test_shares_are_shares():
    assert all(0 < share < 1 for share in [*costs.ARITHMETIC.values(), *costs.MEMORY.values(), costs.LINK_SHARE,
                                     costs.NETWORK_SHARE])  # fmt: skip


@pytest.mark.parametrize(("gpu", "kind", "dtype", "tera"), [
    (V100, "gemm", "float32", 15.7), (V100, "gemm", "float16", 125), (V100, "conv", "float16", 125),
    (V100, "gemm", "bfloat16", 15.7), (V100, "pointwise", "float16", 15.7), (V100, "gemm", "float64", 7.85),
    (A100, "gemm", "float32", 19.49), (A100, "conv", "float32", 156), (A100, "gemm", "bfloat16", 312),
    (GTX, "gemm", "float16", 4.981), (GTX, "conv", "float32", 4.981), (GTX, "gemm", "float64", 4.981 / 32),
])  # fmt: skip
def test_peak_by_type_and_kind(gpu, kind, dtype, tera):
    assert peak_flops_per_s(gpu, kind, dtype) == pytest.approx(tera * 1e12)


def test_bad_operations_are_refused():
    with pytest.raises(ValueError, match="unknown kind of operation 'matmul': choose one of gemm, conv"):
        operation_seconds(1, 1, GTX, "matmul")
    for flops, nbytes in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="must not be negative"):
            operation_seconds(flops, nbytes, GTX, "gemm")


@pytest.mark.parametrize(("lengths", "factor"), [
    ((), 1), ((0,), 1), ((1,), 64), ((63,), 64 / 63), ((64,), 1), ((65,), 128 / 65), ((128, 32), 2), ((32, 32), 4),
])  # fmt: skip
def test_results_are_padded_to_whole_tiles(lengths, factor):
    assert padded(*lengths) == pytest.approx(factor)


def test_copy_is_alpha_plus_bytes_over_beta():
    link = LINKS["PCIe2-x16"]
    alpha = costs.COPY_S + link.latency_s
    assert copy_seconds(0, link) == alpha
    assert copy_seconds(8e9, link) == pytest.approx(alpha + 1 / costs.LINK_SHARE)
    assert copy_seconds(8e9, link, pinned=False) == pytest.approx(alpha + 2 / costs.LINK_SHARE)
    assert copy_seconds(0, replace(link, latency_s=3e-6)) == costs.COPY_S + 3e-6
    with pytest.raises(ValueError, match="must not be negative"):
        copy_seconds(-1, link)
