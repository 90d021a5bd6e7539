"""Pictures of a pipeline's schedule: a row for each rank, a bar for each step, empty where the rank is idle."""

from d2lmini.figures.schedule_frames import Frame
from d2lmini.parallel import start_times

SECONDS = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}  # of one micro-batch on one rank; backward takes twice as long
COLOURS = {"F": "#3a86c8", "B": "#dd7a1f", "I": "#dd7a1f", "W": "#3d9970"}
NAMES = {"F": "forward", "I": "backward, inputs", "W": "backward, weights", "B": "backward"}
IDLE = "#e4e4e4"
ROW, LEFT, WIDTH, FADED, DIGIT = 26, 62, 470, 0.6, 8


def timing(ranks):
    """Return the seconds from first to last step, and the share of them in which a rank is idle, on average.

    ranks: for each rank its steps in order, as `parallel.start_times` wants them. A rank's stages share its seconds.
    """
    seconds = _seconds(ranks)
    begin = start_times(ranks, seconds)
    long = max(at + seconds[kind] for (_, kind, _), at in begin.items())
    busy = sum(seconds[kind] for _, kind, _ in begin) / len(ranks)
    return long, 1 - busy / long


def most_under_way(ranks):
    """Return the most micro-batches whose activations one rank has at a time; one stage of two counts a half."""
    each, most = 1 / _stages_each(ranks), 0
    for order in ranks:
        now = 0
        for _, kind, _ in order:
            now += {"F": each, "I": 0}.get(kind, -each)
            most = max(most, now)
    return most


def pipeline_picture(ranks, until=None):
    """Return a Frame: the schedule in time, from left to right; a rank's second stage is paler.

    A bar has its micro-batch's number where there is room.

    until: the time at the right edge, so that several schedules have one scale; None for the schedule's end.
    """
    seconds, paths, numbers = _seconds(ranks), {}, []
    long, idle = timing(ranks)
    scale = WIDTH / (until or long)
    begin = start_times(ranks, seconds)
    for row, order in enumerate(ranks):
        first = min(stage for stage, _, _ in order)
        for step in order:
            stage, kind, _ = step
            x, width, number = LEFT + begin[step] * scale, seconds[kind] * scale - 0.8, str(step[2])
            bar = f"M{x:.1f} {ROW * row + 3}h{width:.1f}v20h{-width:.1f}z"
            paths.setdefault((kind, stage > first), []).append(bar)
            if width > DIGIT * len(number):
                numbers.append(f'<text x="{x + width / 2:.1f}" y="{ROW * row + 17.5}">{number}</text>')
    parts = [
        f'<rect fill="{IDLE}" x="{LEFT}" y="{ROW * row + 3}" width="{long * scale - 0.8:.1f}" height="20"/>'
        for row in range(len(ranks))
    ] + [
        f'<path fill="{COLOURS[kind]}" opacity="{FADED if second else 1}" d="{"".join(bars)}"/>'
        for (kind, second), bars in paths.items()
    ]
    parts.append(f'<g font-size="13" text-anchor="middle">{"".join(numbers)}</g>')
    for unit in range(0, int(WIDTH / scale) + 1, 5):
        at = f'x="{LEFT + unit * scale:.1f}" y="{ROW * len(ranks) + 16}" text-anchor="middle"'
        parts.append(f'<text {at} font-size="14">{unit}</text>')
    lines = [*(f"rank {rank}" for rank in range(len(ranks))), "time"]
    lines.append(f"{long:g} units of time, idle {idle:.1%}")
    lines.append(f"a rank keeps the activations of at most {most_under_way(ranks):g} micro-batches")
    used = [(COLOURS[kind], NAMES[kind]) for kind in "FBIW" if any(kind == found for found, _ in paths)]
    lines.append("  ".join(_legend(*entry) for entry in [*used, (IDLE, "idle")]))
    told = ["numbers: micro-batches"] if numbers else []
    told += ["paler: the rank's second stage"] if _stages_each(ranks) > 1 else []
    lines.append("; ".join(told))
    for row, line in enumerate(lines):
        parts.append(f'<text x="2" y="{ROW * row + 18}" font-size="14">{line}</text>')
    size = f'viewBox="0 0 {LEFT + WIDTH + 10} {ROW * len(lines)}" width="{LEFT + WIDTH + 10}"'
    return Frame(f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">{"".join(parts)}</svg>')


def pipeline_alt(ranks):
    """Return in words what the picture of a schedule shows."""
    long, idle = timing(ranks)
    most = most_under_way(ranks)
    return f"{long:g} units of time, idle {idle:.1%}, activations of up to {most:g} micro-batches on a rank"


def _legend(colour, name):
    return f'<tspan fill="{colour}">\N{BLACK SQUARE}</tspan> {name}'


def _stages_each(ranks):
    return len({stage for stage, _, _ in ranks[0]})


def _seconds(ranks):
    return {kind: unit / _stages_each(ranks) for kind, unit in SECONDS.items()}
