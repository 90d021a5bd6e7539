"""GPUs as data: what their makers publish, with unit, date and source. What they do not publish is None.

`catalog.check` recomputes what can be recomputed.
"""

import re
from dataclasses import dataclass, replace

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class GPU:
    """One GPU: one chip and its memory; a board with two chips is two of these.

    peak_fp32_flops_per_s: without tensor cores, at `clock_hz`, the clock that the maker's own figure is given for.
    peak_tensor_16_flops_per_s: float16 (and bfloat16 where `bf16`), float32 sums; None without tensor cores.
    Dense: data sheets since 2020 also print twice as much, for matrices of which half is zero in a fixed pattern.
    peak_tensor_tf32_flops_per_s: float32 operands rounded to TF32 on the tensor cores; None where there is none.
    base_clock_hz: the clock without boost, None where unpublished; `at_base_clock()` gives the GPU at that clock.
    fp64_ratio: float64 peak as a share of the float32 peak, until 2017 from the table of arithmetic throughput in the
    CUDA C Programming Guide, 4.2 (2012) and 10.0 (2018). memory_bits: width of the memory's bus.
    memory_bytes: as sold, in units of 2**30 bytes. memory_transfers_per_s: per pin of the bus.
    released: the month it was announced or first sold, YYYY-MM. generation: its maker's name of the architecture.
    """

    name: str
    generation: str
    released: str
    cores: int
    clock_hz: float
    base_clock_hz: float | None
    peak_fp32_flops_per_s: float
    peak_tensor_tf32_flops_per_s: float | None
    peak_tensor_16_flops_per_s: float | None
    bf16: bool
    fp64_ratio: float
    memory_bytes: int
    memory_bits: int
    memory_transfers_per_s: float | None
    memory_bytes_per_s: float
    l2_bytes: int
    multiprocessors: int
    source: str

    def at_base_clock(self):
        """Return this GPU without boost; raises ValueError where the maker publishes no base clock."""
        if self.base_clock_hz is None:
            raise ValueError(f"no base clock is published for the {self.name}")
        slower = self.base_clock_hz / self.clock_hz
        scaled = {field: getattr(self, field) and getattr(self, field) * slower for field in _PEAKS}
        return replace(self, name=f"{self.name} at base clock", clock_hz=self.base_clock_hz, **scaled)

    @property
    def capability(self):
        """CUDA's compute capability, (major, minor): NVIDIA's list "CUDA GPUs"; (0, 0) for a GPU of another maker."""
        return _CAPABILITIES.get(re.split("[- ]", self.name)[0]) or _CAPABILITIES.get(self.generation, (0, 0))

    def peak_8_bit_flops_per_s(self, dtype):
        """Return the rate of products of "int8" or of a float8 type; raises ValueError where there is none.

        Data sheets give twice the 16-bit rate. GeForce cards halve that one for float32 sums: int8 is four times it.
        """
        generations = _INT8 if dtype == "int8" else _FLOAT8
        if self.generation not in generations:
            raise ValueError(f"the {self.name} has no products of {dtype}: expected a card of {', '.join(generations)}")
        halved = dtype == "int8" and re.match(r"RTX \d0[7-9]0", self.name)
        return self.peak_tensor_16_flops_per_s * (4 if halved else 2)


_CAPABILITIES = {"Fermi": (2, 0), "Kepler": (3, 5), "K80": (3, 7), "Maxwell": (5, 2), "Pascal": (6, 1), "P100": (6, 0),
                 "Volta": (7, 0), "Turing": (7, 5), "Ampere": (8, 6), "A30": (8, 0), "A100": (8, 0), "Ada": (8, 9),
                 "Hopper": (9, 0), "Blackwell": (10, 0)}  # fmt: skip
_FLOAT8 = ("Ada", "Hopper", "Blackwell")
_INT8 = ("Turing", "Ampere", *_FLOAT8)
_PEAKS = ("peak_fp32_flops_per_s", "peak_tensor_tf32_flops_per_s", "peak_tensor_16_flops_per_s")


def _gpu(name, generation, released, cores, mhz, base_mhz, tflops, tf32, tensor16, bf16, fp64, gib, bits, gts, gbs,
         l2_mib, sms, source):  # fmt: skip
    """Build a row of the table, given in the units of data sheets: MHz, TFLOPS, GiB, GT/s, GB/s, MiB."""
    return GPU(name, generation, released, cores, mhz * 1e6, base_mhz and base_mhz * 1e6, tflops * 1e12,
               tf32 and tf32 * 1e12, tensor16 and tensor16 * 1e12, bf16, fp64, int(gib * GIB), bits,
               gts and gts * 1e9, gbs * 1e9, int(l2_mib * MIB), sms, source)  # fmt: skip


_TABLE = (
    # name, generation, month, cores, MHz, base MHz, TFLOPS fp32, tf32, fp16 tensor, bf16, fp64 ratio,
    # GiB, bits, GT/s, GB/s, L2 MiB, multiprocessors
    _gpu("GTX 580", "Fermi", "2010-11", 512, 1544, 1544, 1.581, None, None, False, 1 / 8,
         1.5, 384, 4.008, 192.4, 0.75, 16,
         "NVIDIA GeForce GTX 580 specifications, 2010 (the processor clock); L2: NVIDIA GF100 white paper, 2010"),
    _gpu("GTX 580 3GB", "Fermi", "2011", 512, 1544, 1544, 1.581, None, None, False, 1 / 8,
         3, 384, 4.008, 192.4, 0.75, 16,
         "as the GTX 580, with the memory named by Krizhevsky, Sutskever and Hinton, NeurIPS 2012"),
    _gpu("M2070", "Fermi", "2010-07", 448, 1150, 1150, 1.03, None, None, False, 1 / 2, 6, 384, 3.132, 150.3, 0.75, 14,
         "NVIDIA board specification BD-05238-001, 2010 (ECC leaves 5.25 GB); L2: NVIDIA Fermi white paper, 2009"),
    _gpu("K40", "Kepler", "2013-11", 2880, 745, 745, 4.29, None, None, False, 1 / 3, 12, 384, 6, 288, 1.5, 15,
         "NVIDIA board specification BD-06902-001, 2013 (base clock; boost to 875 MHz must be asked for); L2: NVIDIA "
         "Kepler GK110/210 white paper, 2014"),
    _gpu("K80 (one of two chips)", "Kepler", "2014-11", 2496, 875, 562, 4.37, None, None, False, 1 / 3,
         12, 384, 5, 240, 1.5, 13,
         "NVIDIA board specification BD-07317-001, 2015 (half of the board's 8.74 TFLOPS, with boost, and 480 GB/s); "
         "L2: NVIDIA Kepler GK110/210 white paper, 2014"),
    _gpu("GTX 980", "Maxwell", "2014-09", 2048, 1216, 1126, 4.981, None, None, False, 1 / 32,
         4, 256, 7.01, 224.3, 2, 16,
         "NVIDIA GeForce GTX 980 white paper, 2014 (which prints 4612 GFLOPS, at base clock)"),
    _gpu("GTX 1080", "Pascal", "2016-05", 2560, 1733, 1607, 8.873, None, None, False, 1 / 32, 8, 256, 10, 320, 2, 20,
         "NVIDIA GeForce GTX 1080 white paper, 2016"),
    _gpu("GTX 1080 Ti", "Pascal", "2017-03", 3584, 1582, 1480, 11.34, None, None, False, 1 / 32,
         11, 352, 11, 484, 2.75, 28, "NVIDIA GeForce GTX 1080 Ti specifications, 2017; the chip: Tesla P40's, GP102"),
    _gpu("P100-SXM2-16GB", "Pascal", "2016-04", 3584, 1480, 1328, 10.61, None, None, False, 1 / 2,
         16, 4096, 1.43, 732.2, 4, 56, "NVIDIA Tesla P100 white paper WP-08019-001, 2016"),
    _gpu("P100-PCIe-16GB", "Pascal", "2016-06", 3584, 1303, None, 9.34, None, None, False, 1 / 2,
         16, 4096, 1.43, 732.2, 4, 56, "NVIDIA Tesla P100 PCIe data sheet, 2016; the chip is the P100-SXM2-16GB's"),
    _gpu("V100-SXM2-16GB", "Volta", "2017-05", 5120, 1530, None, 15.7, None, 125, False, 1 / 2,
         16, 4096, 1.755, 898.6, 6, 80,
         "NVIDIA Tesla V100 GPU architecture white paper WP-08608-001, 2017 (bandwidth rounded there to 900 GB/s); "
         "memory clock, 877.5 MHz: NVIDIA A100 white paper, 2020"),
    _gpu("V100-SXM2-32GB", "Volta", "2018-03", 5120, 1530, None, 15.7, None, 125, False, 1 / 2,
         32, 4096, 1.755, 898.6, 6, 80, "as the V100-SXM2-16GB; memory: NVIDIA V100 data sheet, 2020"),
    _gpu("V100-PCIe-16GB", "Volta", "2017-06", 5120, 1370, None, 14.03, None, 112, False, 1 / 2,
         16, 4096, 1.755, 898.6, 6, 80, "NVIDIA V100 data sheet, 2020; the chip is the V100-SXM2-16GB's"),
    _gpu("V100-PCIe-32GB", "Volta", "2018-03", 5120, 1370, None, 14.03, None, 112, False, 1 / 2,
         32, 4096, 1.755, 898.6, 6, 80, "as the V100-PCIe-16GB; memory: NVIDIA V100 data sheet, 2020"),
    _gpu("T4", "Turing", "2018-09", 2560, 1590, 585, 8.14, None, 65, False, 1 / 32, 16, 256, 10, 320, 4, 40,
         "NVIDIA Turing GPU architecture white paper WP-09183-001, 2018; NVIDIA T4 data sheet, 2019"),
    _gpu("RTX 2080 Ti", "Turing", "2018-09", 4352, 1635, 1350, 14.23, None, 56.9, False, 1 / 32,
         11, 352, 14, 616, 5.5, 68,
         "NVIDIA Turing GPU architecture white paper WP-09183-001, 2018 (Founders Edition; float32 sums)"),
    _gpu("Quadro RTX 6000", "Turing", "2018-08", 4608, 1770, 1455, 16.31, None, 130.5, False, 1 / 32,
         24, 384, 14, 672, 6, 72, "NVIDIA Turing GPU architecture white paper WP-09183-001, 2018"),
    _gpu("Quadro RTX 8000", "Turing", "2018-08", 4608, 1770, 1395, 16.31, None, 130.5, False, 1 / 32,
         48, 384, 14, 672, 6, 72, "NVIDIA Quadro RTX 8000 data sheet, 2018; the chip is the Quadro RTX 6000's"),
    _gpu("Titan RTX", "Turing", "2018-12", 4608, 1770, 1350, 16.31, None, 130.5, False, 1 / 32,
         24, 384, 14, 672, 6, 72, "NVIDIA TITAN RTX specifications, 2018; the chip is the Quadro RTX 6000's"),
    _gpu("RTX 3080", "Ampere", "2020-09", 8704, 1710, 1440, 29.77, 29.8, 59.5, True, 1 / 64,
         10, 320, 19, 760, 5, 68, "NVIDIA Ampere GA102 GPU architecture white paper, 2020 (as the RTX 3090)"),
    _gpu("RTX 3070", "Ampere", "2020-10", 5888, 1725, 1500, 20.31, 20.3, 40.6, True, 1 / 64,
         8, 256, 14, 448, 4, 46, "NVIDIA Ampere GA102 GPU architecture white paper, 2020 (as the RTX 3090)"),
    _gpu("RTX 3090", "Ampere", "2020-09", 10496, 1695, 1400, 35.58, 35.6, 71, True, 1 / 64,
         24, 384, 19.5, 936, 6, 82,
         "NVIDIA Ampere GA102 GPU architecture white paper, 2020 (16-bit products with float32 sums); base clock: "
         "NVIDIA GeForce RTX 3090 specifications, 2020"),
    _gpu("RTX A6000", "Ampere", "2020-10", 10752, 1800, 1410, 38.71, 77.4, 154.8, True, 1 / 64,
         48, 384, 16, 768, 6, 84, "NVIDIA Ampere GA102 GPU architecture white paper, 2020"),
    _gpu("RTX A5000", "Ampere", "2021-04", 8192, 1695, None, 27.77, 55.5, 111.1, True, 1 / 64,
         24, 384, 16, 768, 6, 64, "NVIDIA RTX A5000 data sheet, 2021; the chip: Ampere GA102 white paper, 2020"),
    _gpu("RTX A4000", "Ampere", "2021-04", 6144, 1560, None, 19.17, 38.3, 76.7, True, 1 / 64,
         16, 256, 14, 448, 4, 48, "NVIDIA RTX A4000 data sheet, 2021; the chip: Ampere GA102 white paper, 2020"),
    _gpu("A30", "Ampere", "2021-04", 3584, 1440, None, 10.32, 82.6, 165, True, 1 / 2,
         24, 3072, 2.43, 933.1, 24, 56, "NVIDIA A30 data sheet, 2021; the chip: A100 white paper, 2020"),
    _gpu("A10", "Ampere", "2021-04", 9216, 1695, 885, 31.24, 62.5, 125, True, 1 / 64, 24, 384, 12.5, 600, 6, 72,
         "NVIDIA A10 data sheet, 2021; the chip: Ampere GA102 white paper, 2020"),
    _gpu("A40", "Ampere", "2020-10", 10752, 1740, None, 37.42, 74.8, 149.7, True, 1 / 64, 48, 384, 14.5, 696, 6, 84,
         "NVIDIA Ampere GA102 GPU architecture white paper, 2020"),
    _gpu("A100-SXM4-40GB", "Ampere", "2020-05", 6912, 1410, None, 19.49, 156, 312, True, 1 / 2,
         40, 5120, 2.43, 1555, 40, 108, "NVIDIA A100 Tensor Core GPU architecture white paper, 2020"),
    _gpu("A100-SXM4-80GB", "Ampere", "2020-11", 6912, 1410, None, 19.49, 156, 312, True, 1 / 2,
         80, 5120, 3.186, 2039, 40, 108,
         "NVIDIA A100 80 GB data sheet, 2020; cores, L2: A100 white paper, 2020; memory clock: nvidia-smi, 1593 MHz"),
    _gpu("A100-PCIe-40GB", "Ampere", "2020-06", 6912, 1410, None, 19.49, 156, 312, True, 1 / 2,
         40, 5120, 2.43, 1555, 40, 108, "NVIDIA A100 data sheet, 2021; the chip is the A100-SXM4-40GB's"),
    _gpu("A100-PCIe-80GB", "Ampere", "2021-06", 6912, 1410, None, 19.49, 156, 312, True, 1 / 2,
         80, 5120, 3.024, 1935, 40, 108, "NVIDIA A100 data sheet, 2021; memory clock: nvidia-smi, 1512 MHz"),
    _gpu("RTX 4090", "Ada", "2022-09", 16384, 2520, 2235, 82.58, 82.6, 165.2, True, 1 / 64,
         24, 384, 21, 1008, 72, 128, "NVIDIA Ada GPU architecture white paper, 2022 (16-bit products, float32 sums)"),
    _gpu("RTX 6000 Ada", "Ada", "2022-12", 18176, 2505, None, 91.06, 182.1, 364.2, True, 1 / 64,
         48, 384, 20, 960, 96, 142, "NVIDIA RTX 6000 Ada Generation data sheet, 2022; the chip: Ada white paper, 2022"),
    _gpu("L4", "Ada", "2023-03", 7424, 2040, None, 30.3, 60.5, 121, True, 1 / 64, 24, 192, 12.5, 300, 48, 58,
         "NVIDIA L4 data sheet, 2023; the chip: Ada white paper, 2022"),
    _gpu("L40S", "Ada", "2023-08", 18176, 2520, None, 91.6, 183, 366, True, 1 / 64, 48, 384, 18, 864, 96, 142,
         "NVIDIA L40S data sheet, 2023; the chip: Ada white paper, 2022"),
    _gpu("H100-PCIe-80GB", "Hopper", "2022-03", 14592, 1755, None, 51.2, 378, 756, True, 1 / 2,
         80, 5120, 3.186, 2039, 50, 114, "NVIDIA H100 Tensor Core GPU architecture white paper, 2023"),
    _gpu("H100-SXM5-80GB", "Hopper", "2022-03", 16896, 1980, None, 66.9, 494.7, 989.4, True, 1 / 2,
         80, 5120, 5.238, 3352, 50, 132,
         "NVIDIA H100 Tensor Core GPU architecture white paper, 2023 (tensor cores at 1830 MHz)"),
    _gpu("H200-SXM5-141GB", "Hopper", "2023-11", 16896, 1980, None, 66.9, 494.7, 989.4, True, 1 / 2,
         141, 6144, None, 4800, 60, 132,
         "NVIDIA H200 data sheet, 2023; the chip is the H100's: H100 white paper, 2023, with 60 MB of L2 in the "
         "whole chip, all in use here as cudaGetDeviceProperties says"),
    _gpu("GH200-96GB", "Hopper", "2023-05", 16896, 1980, None, 66.9, 494.7, 989.4, True, 1 / 2,
         96, 6144, None, 4000, 60, 132,
         "NVIDIA GH200 Grace Hopper Superchip data sheet, 2023; the chip is the H200-SXM5-141GB's. PCIe stands in for "
         "its NVLink-C2C to the host, which is not modelled"),
    _gpu("B200-SXM-180GB", "Blackwell", "2024-03", 18944, 1980, None, 75, 1125, 2250, True, 1 / 2,
         180, 8192, None, 8000, 126, 148,
         "NVIDIA HGX B200 and DGX B200 data sheets, 2024; multiprocessors, clock, L2: Chips and Cheese, 2025"),
)  # fmt: skip
GPUS = {gpu.name: gpu for gpu in _TABLE}
