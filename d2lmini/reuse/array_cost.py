"""What a product costs on a systolic array, by formula: cycles, fetches, and how busy the elements are.

`systolic` explains the three dataflows, and arrives at the same numbers by running them.
"""

from dataclasses import dataclass, replace

DATAFLOWS = ("output", "weight", "input")


@dataclass(frozen=True)
class Cost:
    """What a product costs on an array.

    Attributes:
        cycles: From the first value that enters to the last sum.
        reads_A, reads_B, reads_C, writes_C: Elements from and to memory, by matrix, partial sums among them.
        utilisation: Multiplications done ÷ those that all elements could have done in these cycles; 0 for no cycles.
    """

    cycles: int
    reads_A: int
    reads_B: int
    reads_C: int
    writes_C: int
    utilisation: float

    @property
    def traffic(self):
        """Elements moved between the array and memory, in both directions."""
        return self.reads_A + self.reads_B + self.reads_C + self.writes_C

    def transposed(self):
        """Return the cost of the transposed product, (A B)ᵀ = Bᵀ Aᵀ: A and B change places."""
        return replace(self, reads_A=self.reads_B, reads_B=self.reads_A)


def timetable(pieces, steps, rows, columns, overlap):
    """Return the cycles in which pieces begin, the first in cycle 0, and the cycles until the last one is complete.

    A piece takes 2·rows + columns + steps - 2 cycles. With overlap the next one begins after max(steps, rows), for a
    stream takes `steps` and moving weights in, or sums out, takes `rows`.

    Args:
        pieces: How many there are.
        steps: Rows of the stream that passes a piece.
        rows, columns: Of the array.
        overlap: Whether a piece begins before the one before it is complete.

    Source: Jouppi et al. 2017 for the TPU.
    """
    alone = 2 * rows + columns + steps - 2
    period = max(steps, rows) if overlap else alone
    starts = [piece * period for piece in range(pieces)]
    return starts, starts[-1] + alone if starts else 0


def cost(m, n, k, rows, columns, dataflow, overlap=True):
    """Return the `Cost` of a product [m, k] × [k, n] on an array, without computing it.

    Args:
        m, n, k: The product's sizes.
        rows, columns: The array's elements.
        dataflow: A name in `DATAFLOWS`.
        overlap: Whether a piece begins before the one before it is complete.

    Raises:
        ValueError: An unknown dataflow.
    """
    if known(dataflow) == "input":
        return cost(n, m, k, rows, columns, "weight", overlap).transposed()
    if not m * n * k:
        return Cost(0, 0, 0, 0, 0, 0.0)
    down, steps = (m, k) if dataflow == "output" else (k, m)
    pieces_down, pieces_across = -(-down // rows), -(-n // columns)
    _, cycles = timetable(pieces_down * pieces_across, steps, rows, columns, overlap)
    utilisation = m * n * k / (cycles * rows * columns)
    if dataflow == "output":
        return Cost(cycles, m * k * pieces_across, k * n * pieces_down, 0, m * n, utilisation)
    return Cost(cycles, m * k * pieces_across, k * n, m * n * (pieces_down - 1), m * n * pieces_down, utilisation)


def known(dataflow):
    """Return `dataflow`; raises ValueError unless it is one of `DATAFLOWS`."""
    if dataflow not in DATAFLOWS:
        raise ValueError(f"unknown dataflow {dataflow!r}: choose one of {', '.join(DATAFLOWS)}")
    return dataflow
