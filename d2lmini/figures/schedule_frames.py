"""Pictures of a schedule as it is executed: what each rank's chunks hold after a step, and the step's messages.

A rank is a column with one cell for each chunk; a cell has one coloured stripe for every rank whose contribution it
holds. Arrows go from sender to receiver, to the right above the columns and to the left below them, with the numbers of
the chunks that they carry: drawn through for "reduce", dashed for "copy". Cells that were written have a thick frame.

It is SVG by hand: a figure with a hundred frames must fit a page, and a frame takes some 4 KB.
"""

from d2lmini.collectives.schedules import states

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#222255")  # Tol, bright
# A cell's width, between columns, a cell's height, room for arrows; pixels. Six ranks are readable on a phone.
CELL, GAP, ROW, ARC = 46, 18, 24, 54
LEFT, TITLE = 60, 24
SHOWN = 1.6  # times as large where the page has room


class Frame:
    """One picture, as SVG."""

    def __init__(self, text):
        self.text = text

    def _repr_svg_(self):
        return self.text


def draw(schedule, step):
    """Return a Frame: the state after `step` steps of a schedule, and the messages of the last of these steps.

    Args:
        schedule: A `schedules.Schedule` for at most 8 ranks.
        step: 0 for the beginning; past the last step the picture is that of the last.

    Raises:
        ValueError: More ranks.
    """
    if schedule.world_size > len(COLOURS):
        raise ValueError(f"a picture shows at most {len(COLOURS)} ranks, got {schedule.world_size}")
    done, sends, state = _after(schedule, step)
    return picture(state, f"{schedule.name}: after step {done} of {len(schedule.steps)}", sends)


def picture(state, title, sends=None):
    """Return a Frame of a state and of messages.

    Args:
        state: As `schedules.states` yields it; None is an empty cell.
        title: Above the picture.
        sends: The messages; None leaves out the room for them as well.
    """
    size, chunks = len(state), len(state[0])
    bottom, room, sends = _top(chunks), 0 if sends is None else ARC, sends or ()
    width, height, top = LEFT + size * (CELL + GAP), TITLE + room + ROW * chunks + 22 + room, ARC - room
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top} {width} {height}" width="{SHOWN * width:g}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">'
        '<marker id="a" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L6 3L0 6z"/></marker>',
        f'<text x="4" y="{top + 14}" text-anchor="start">{title}</text>',
    ]
    parts += [_stripes(state, rank, chunks) for rank in range(size)]
    parts += [_path(_cells(range(size), range(chunks)), 1)]
    parts += [_path(_cells([send.dst], range(send.start, send.stop)), 3) for send in sends]
    for chunk in range(chunks):
        parts.append(f'<text x="{LEFT - 6}" y="{_top(chunk) + 17}" text-anchor="end">chunk {chunk}</text>')
    for rank, colour in enumerate(COLOURS[:size]):
        parts.append(
            f'<path fill="{colour}" d="M{_left(rank)} {bottom + 5}h10v12h-10z"/>'
            f'<text x="{_left(rank) + 31}" y="{bottom + 16}">rank {rank}</text>'
        )
    parts += [_arrow(send, bottom) for send in sends]
    return Frame("".join([*parts, "</svg>"]))


def describe(schedule, step):
    """Return the picture in words: the step, its messages, and how many chunks are complete."""
    done, sends, state = _after(schedule, step)
    size, chunks = schedule.world_size, schedule.chunks
    complete = sum(len(held) == size for row in state for held in row)
    moves = "; ".join(f"{send.src} to {send.dst}: {send.op} chunks {_range(send)}" for send in sends)
    return (
        f"{schedule.name}, {size} ranks, after step {done} of {len(schedule.steps)}. {moves or 'No message'}. "
        f"{complete} of {size * chunks} chunks hold all contributions"
    )


def _after(schedule, step):
    """Return the number of steps done, the sends of the last one, and the state after it."""
    done = min(step, len(schedule.steps))
    return done, schedule.steps[done - 1] if done else (), list(states(schedule))[done]


def _left(rank, share=0):
    return round(LEFT + rank * (CELL + GAP) + share * CELL)


def _top(chunk):
    return TITLE + ARC + ROW * chunk


def _stripes(state, contributor, chunks):
    """Return one path with the stripes of one rank's contribution in all cells."""
    stripe, path = CELL / len(state), ""
    for rank, row in enumerate(state):
        for chunk in range(chunks):
            if contributor in (row[chunk] or ()):
                x = _left(rank) + contributor * stripe
                path += f"M{x:g} {_top(chunk)}h{stripe:g}v{ROW}h{-stripe:g}z"
    return f'<path fill="{COLOURS[contributor]}" d="{path}"/>'


def _cells(ranks, chunks):
    return "".join(f"M{_left(rank)} {_top(chunk)}h{CELL}v{ROW}h-{CELL}z" for rank in ranks for chunk in chunks)


def _path(path, width):
    return f'<path fill="none" stroke="#000" stroke-width="{width}" d="{path}"/>'


def _arrow(send, bottom):
    """Return a message as an arc with the numbers of its chunks."""
    right = send.dst > send.src
    x1, x2 = (_left(send.src, 0.8), _left(send.dst, 0.2)) if right else (_left(send.src, 0.2), _left(send.dst, 0.8))
    y, way = (_top(0) - 4, -1) if right else (bottom + 22, 1)
    bend = min(20 + 12 * abs(send.dst - send.src), 48)
    apex, dash = y + way * bend * 0.75, "" if send.op == "reduce" else ' stroke-dasharray="5 3"'
    return (
        f'<path fill="none" stroke="#000" stroke-width="1.5"{dash} marker-end="url(#a)" '
        f'd="M{x1} {y}C{x1} {y + way * bend} {x2} {y + way * bend} {x2} {y}"/>'
        f'<text x="{(x1 + x2) / 2:g}" y="{apex + (-3 if right else 12):g}">{_range(send)}</text>'
    )


def _range(send):
    return f"{send.start}" if send.stop == send.start + 1 else f"{send.start}–{send.stop - 1}"
