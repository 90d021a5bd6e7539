"""Programs of `torch.distributed` on 2, 4 and 8 simulated ranks: equal to one process, bytes, and times twice the same.

    python benchmarks/rank_cases.py            # rewrites reference/simulated-ranks.md, in some minutes

The programs are the cases of tests/sim/ranks, which hold the first two columns of results on every run of the tests.
"""

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "sim" / "ranks"))
import cases  # noqa: E402

PAGE = ROOT / "reference" / "simulated-ranks.md"
BEGIN = "<!-- the table: written by benchmarks/rank_cases.py -->\n"
HEAD = "| program | off by | bytes sent | as the formula | simulated |\n|---|---:|---:|---|---:|\n"


def line(case):
    """Return the case's line of the table; raise RuntimeError where a second run differs from the first."""
    off, formulas = 0, []
    for ranks in (2, 4, 8):
        results, sent, seconds = ran_twice(case, ranks)
        off = max(off, *(difference(result, case.alone()) for result in results))
        if case.sent:
            formulas.append(all(sent[name] == nbytes for name, nbytes in case.sent(ranks).items()))
    agrees = ("yes" if all(formulas) else "no") if formulas else "none"
    differs = f"{off:.1e}" if off else "nothing"
    return f"| {case.name} | {differs} | {sum(sent.values()):,} | {agrees} | {seconds * 1e3:.3f} ms |\n"


def ran_twice(case, ranks):
    """Return each rank's results, the bytes sent by collective and the simulated seconds, the same in two runs."""
    (results, sent, *times), (again, *second) = cases.ran(case, ranks), cases.ran(case, ranks)
    if second != [sent, *times] or any(difference(*pair) for pair in zip(results, again)):
        raise RuntimeError(f"{case.name} on {ranks} ranks: the second run differs from the first")
    return results, sent, times[0]


def difference(some, others):
    """Return the largest difference between two lists of tensors."""
    return max((a.double() - b.double()).abs().max().item() for a, b in zip(some, others))


def main():
    """Run all cases and write the table into the page."""
    warnings.simplefilter("ignore")
    lines = []
    for case in cases.CASES:
        lines.append(line(case))
        print(lines[-1], end="", flush=True)
    page = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(page + BEGIN + "\n" + HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
