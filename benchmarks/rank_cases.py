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
HEAD = ("| program | ranks | off by | bytes sent | as the formula | simulated | the same twice |\n"
        "|---|---:|---:|---:|---|---:|---|\n")  # fmt: skip


def line(case, ranks):
    """Return one line of the table."""
    (results, sent, *times), (second_results, *second) = cases.ran(case, ranks), cases.ran(case, ranks)
    wanted = case.alone()
    off = max((ours.double() - theirs.double()).abs().max().item()
              for result in results for ours, theirs in zip(result, wanted))  # fmt: skip
    formula = case.sent(ranks) if case.sent else None
    met = formula and all(sent[name] == nbytes for name, nbytes in formula.items())
    agrees = "none" if formula is None else "yes" if met else "no"
    same = second == [sent, *times] and all(
        (a == b).all() for ours, theirs in zip(results, second_results) for a, b in zip(ours, theirs))  # fmt: skip
    differs = f"{off:.1e}" if off else "nothing"
    return (f"| {case.name} | {ranks} | {differs} | {sum(sent.values()):,} | {agrees} | "
            f"{times[0] * 1e3:.3f} ms | {'yes' if same else 'no'} |\n")  # fmt: skip


def main():
    """Run all cases and write the table into the page."""
    warnings.simplefilter("ignore")
    lines = []
    for case in cases.CASES:
        for ranks in (2, 4, 8):
            lines.append(line(case, ranks))
            print(lines[-1], end="", flush=True)
    page = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(page + BEGIN + "\n" + HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
