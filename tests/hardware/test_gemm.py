import pytest

from simgpu.hardware.gemm import Gemm, gemm_seconds
from simgpu.hardware.gpus import GPUS

A100, H100, B200 = GPUS["A100-SXM4-80GB"], GPUS["H100-SXM5-80GB"], GPUS["B200-SXM-180GB"]


def seconds(m, n, k, gpu=A100, batch=1, share=0.9, reordered=0):
    nbytes = 2 * batch * (m * k + k * n + m * n)
    return gemm_seconds(Gemm(batch, m, n, k, nbytes, reordered), gpu, gpu.peak_tensor_16_flops_per_s * share, 2)


@pytest.mark.parametrize("gpu", [A100, H100, B200])
def test_a_large_product_reaches_its_share_of_peak_and_a_thin_one_of_the_memory(gpu):
    n = 8192
    assert 2 * n**3 / seconds(n, n, n, gpu) == pytest.approx(0.9 * gpu.peak_tensor_16_flops_per_s, rel=0.1)
    assert 0.6 < 2 * n * n / seconds(1, n, n, gpu) / gpu.memory_bytes_per_s < 0.9


def test_one_tile_more_than_there_are_multiprocessors_takes_another_wave():
    full = [seconds(128 * tiles, 256, 8192) for tiles in (A100.multiprocessors, A100.multiprocessors + 1)]
    assert full[1] > 1.1 * full[0]


def test_a_long_sum_for_a_small_result_is_split():
    one_block = 2 * 64 * 64 * 65536 / (0.9 * A100.peak_tensor_16_flops_per_s / A100.multiprocessors)
    assert seconds(64, 64, 65536) < one_block / 2


def test_batches_fill_the_card_like_larger_results():
    assert seconds(128, 128, 512, batch=64) < 8 * seconds(128, 128, 512)


def test_rows_of_odd_length_lose_the_tensor_cores_half():
    assert seconds(4096, 4097, 4096) > 1.6 * seconds(4096, 4096, 4096)


def test_reordering_operands_takes_its_own_time():
    assert seconds(512, 512, 512, reordered=10**9) - seconds(512, 512, 512) > 10**9 / A100.memory_bytes_per_s


@pytest.mark.parametrize("sizes", [(0, 8, 8), (8, 0, 8), (8, 8, 0), (1, 1, 1)])
def test_the_smallest_take_the_shortest_time(sizes):
    assert 0 < seconds(*sizes) < 10e-6
