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

    Attributes:
        name: The key in `GPUS`, as the maker writes it, with the form and the memory where there are several.
        generation: The maker's name of the architecture.
        released: The month in which it was announced or first sold, YYYY-MM.
        cores: Units that each do one float32 multiply-add a clock.
        clock_hz: The clock that the maker's peak is given for.
        base_clock_hz: The clock without boost; None where unpublished.
        peak_fp32_flops_per_s: Without tensor cores, at `clock_hz`.
        peak_tensor_tf32_flops_per_s: Float32 operands rounded to TF32, on tensor cores; None without.
        peak_tensor_16_flops_per_s: Float16, and bfloat16 where `bf16`, with float32 sums; None without tensor cores.
            Dense: data sheets since 2020 also print twice as much, for matrices half of which is zero in a pattern.
        bf16: Whether the tensor cores take bfloat16.
        fp64_ratio: The float64 peak as a share of the float32 peak. Source, until 2017: the table of arithmetic
            throughput in the CUDA C Programming Guide, 4.2 (2012) and 10.0 (2018).
        memory_bytes: As sold, in units of 2**30 bytes.
        memory_bits: The width of the memory's bus.
        memory_transfers_per_s: On each pin of that bus; None where unpublished.
        memory_bytes_per_s: The memory's bandwidth.
        l2_bytes: The size of the L2 cache.
        multiprocessors: Streaming multiprocessors that are switched on.
        source: The document that the figures are from.
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

    def at_base_clock(self) -> "GPU":
        """Return this GPU without boost: its clock and its peaks are the base clock's.

        Raises:
            ValueError: The maker publishes no base clock.
        """
        if self.base_clock_hz is None:
            raise ValueError(f"no base clock is published for the {self.name}")
        slower = self.base_clock_hz / self.clock_hz
        scaled = {field: getattr(self, field) and getattr(self, field) * slower for field in _PEAKS}
        return replace(self, name=f"{self.name} at base clock", clock_hz=self.base_clock_hz, **scaled)

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA's compute capability, (major, minor); (0, 0) for a GPU of another maker. Source: NVIDIA, "CUDA GPUs"."""
        return _CAPABILITIES.get(re.split("[- ]", self.name)[0]) or _CAPABILITIES.get(self.generation, (0, 0))

    def peak_8_bit_flops_per_s(self, dtype: str) -> float:
        """Return the peak rate of matrix multiplications with 8-bit operands.

        Data sheets give twice the 16-bit rate. GeForce cards halve that one for float32 sums: int8 is four times it.

        Args:
            dtype: "int8" or the name of a float8 type.

        Raises:
            ValueError: The card has no such tensor cores.
        """
        generations = _INT8 if dtype == "int8" else _FLOAT8
        if self.generation not in generations:
            raise ValueError(f"the {self.name} has no products of {dtype}: expected a card of {', '.join(generations)}")
        halved = dtype == "int8" and re.match(r"RTX \d0[7-9]0", self.name)
        return (self.peak_tensor_16_flops_per_s or 0.0) * (4 if halved else 2)


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
    "RTX Blackwell": (12, 0),
}
_FLOAT8 = ("Ada", "Hopper", "Blackwell", "RTX Blackwell", "CDNA 4")  # CDNA 3 has formats of its own
_INT8 = ("Turing", "Ampere", "CDNA 3", *_FLOAT8)
_PEAKS = ("peak_fp32_flops_per_s", "peak_tensor_tf32_flops_per_s", "peak_tensor_16_flops_per_s")


_UNITS = {"_mhz": 1e6, "_tflops": 1e12, "_gt_per_s": 1e9, "_gb_per_s": 1e9, "_gib": GIB, "_mib": MIB}


def _gpu(row: dict[str, str]) -> GPU:
    """Return the GPU of a row of the table, whose columns are in the units of data sheets."""

    def given(column: str) -> float | None:
        (unit,) = (factor for ending, factor in _UNITS.items() if column.endswith(ending))
        return float(row[column]) * unit if row[column] else None

    def scaled(column: str) -> float:
        value = given(column)
        if value is None:
            raise ValueError(f"gpus.csv: expected a number in column {column} of {row['name']}, found none")
        return value

    return GPU(
        name=row["name"],
        generation=row["generation"],
        released=row["released"],
        cores=int(row["cores"]),
        clock_hz=scaled("clock_mhz"),
        base_clock_hz=given("base_clock_mhz"),
        peak_fp32_flops_per_s=scaled("fp32_tflops"),
        peak_tensor_tf32_flops_per_s=given("tf32_tflops"),
        peak_tensor_16_flops_per_s=given("tensor_16_tflops"),
        bf16=row["bf16"] == "yes",
        fp64_ratio=1 / int(row["fp64_ratio"].removeprefix("1/")),
        memory_bytes=int(scaled("memory_gib")),
        memory_bits=int(row["memory_bits"]),
        memory_transfers_per_s=given("memory_gt_per_s"),
        memory_bytes_per_s=scaled("memory_gb_per_s"),
        l2_bytes=int(scaled("l2_mib")),
        multiprocessors=int(row["multiprocessors"]),
        source=row["source"],
    )


with Path(__file__).with_name("gpus.csv").open(encoding="utf-8", newline="") as _table:
    GPUS: dict[str, GPU] = {row["name"]: _gpu(row) for row in csv.DictReader(_table)}
