"""The check of the exercise on a report of `simgpu run`: what took most of a GPU's time."""

from d2lmini.checks.mechanism import Wrong, attempt, brief, check


@check
def verdict(function):
    """``function(gpu)``: "compute", "communication" or "host", by the longest of three times in a report's GPU."""
    for busy, exposed, idle, want in (
        (3.0, 1.0, 1.5, "compute"),
        (0.002, 0.001, 0.0015, "compute"),
        (1.0, 4.0, 1.0, "communication"),
        (2.0, 0.5, 2.5, "host"),
        (2.0, 1.9, 1.8, "compute"),
        (0.0, 0.0, 1e-6, "host"),
        (2.0, 3.0, 2.5, "communication"),
    ):
        times = {"busy_seconds": busy, "exposed_communication_seconds": exposed, "idle_seconds": idle}
        others = {"gpu": 7, "peak_bytes": 2**30, "communication_seconds": 9.0, "held_at_peak": {"train.py:1": 2**20}}
        given = f"busy {busy:g} s, exposed communication {exposed:g} s, idle {idle:g} s"
        answer = attempt(function, {**others, **times}, given=given)
        if not isinstance(answer, str) or answer != want:
            raise Wrong(f"{given}: expected {want!r}, got {brief(answer)}")
    return "the longest of the three times decides"
