"""GPUs as data, read from gpus.csv: what their makers publish, with its source. What they do not publish is None.

`links.check` recomputes what can be recomputed.
"""

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path

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


_CAPABILITIES = {
    "Fermi": (2, 0),
    "Kepler": (3, 5),
    "K80": (3, 7),
    "Maxwell": (5, 2),
    "Pascal": (6, 1),
    "P100": (6, 0),
    "Volta": (7, 0),
    "Turing": (7, 5),
    "Ampere": (8, 6),
    "A30": (8, 0),
    "A100": (8, 0),
    "Ada": (8, 9),
    "Hopper": (9, 0),
    "Blackwell": (10, 0),
}
_FLOAT8 = ("Ada", "Hopper", "Blackwell")
_INT8 = ("Turing", "Ampere", *_FLOAT8)
_PEAKS = ("peak_fp32_flops_per_s", "peak_tensor_tf32_flops_per_s", "peak_tensor_16_flops_per_s")


_UNITS = {"_mhz": 1e6, "_tflops": 1e12, "_gt_per_s": 1e9, "_gb_per_s": 1e9, "_gib": GIB, "_mib": MIB}


def _gpu(row):
    """Return the GPU of a row of the table, whose columns are in the units of data sheets."""

    def scaled(column):
        (unit,) = (factor for ending, factor in _UNITS.items() if column.endswith(ending))
        return float(row[column]) * unit if row[column] else None

    return GPU(
        name=row["name"],
        generation=row["generation"],
        released=row["released"],
        cores=int(row["cores"]),
        clock_hz=scaled("clock_mhz"),
        base_clock_hz=scaled("base_clock_mhz"),
        peak_fp32_flops_per_s=scaled("fp32_tflops"),
        peak_tensor_tf32_flops_per_s=scaled("tf32_tflops"),
        peak_tensor_16_flops_per_s=scaled("tensor_16_tflops"),
        bf16=row["bf16"] == "yes",
        fp64_ratio=1 / int(row["fp64_ratio"].removeprefix("1/")),
        memory_bytes=int(scaled("memory_gib")),
        memory_bits=int(row["memory_bits"]),
        memory_transfers_per_s=scaled("memory_gt_per_s"),
        memory_bytes_per_s=scaled("memory_gb_per_s"),
        l2_bytes=int(scaled("l2_mib")),
        multiprocessors=int(row["multiprocessors"]),
        source=row["source"],
    )


with Path(__file__).with_name("gpus.csv").open(encoding="utf-8", newline="") as _table:
    GPUS = {row["name"]: _gpu(row) for row in csv.DictReader(_table)}
