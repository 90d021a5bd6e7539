"""Wrong answers that checks.band_report must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("signed errors cancel", "abs(simulated / published - 1)", "simulated / published - 1"),
    ("the mean, which one row can move", "statistics.median(off)", "statistics.mean(off)"),
    ("missed rows are dropped", "len(found) - len(off)", "0"),
    ("missed rows count as predicted", "len(off), len(found)", "len(found), len(found)"),
    ("a row that was missed is off by nothing", "if simulated is not None", ""),
    ("published over simulated", "simulated / published", "published / simulated"),
]


def band_report(rows):
    """One total over all rows, under every name."""
    off = sorted(abs(simulated / published - 1) for _, published, simulated in rows if simulated)
    missed = sum(simulated is None for *_, simulated in rows)
    middle = off[len(off) // 2] if off else None
    return {band: (len(off), missed, middle) for band, *_ in rows}
