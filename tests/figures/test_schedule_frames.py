"""The stepper's pictures show what the schedule does, and in words what they show."""

import re
from xml.etree import ElementTree

import pytest

from d2lmini.collectives import schedules
from d2lmini.figures import schedule_frames

each_allreduce = pytest.mark.parametrize("name", schedules.ALLREDUCE)


def stripes(svg, colour):
    """Return how many stripes of a rank's colour a picture has in its cells."""
    return re.search(rf'<path fill="{colour}" d="([^"]*)"/>', svg)[1].count("M")


@each_allreduce
@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_stripes_are_the_contributions(name, ranks):
    schedule = schedules.ALLREDUCE[name](ranks)
    for step, state in enumerate(schedules.states(schedule)):
        svg = schedule_frames.draw(schedule, step)._repr_svg_()
        ElementTree.fromstring(svg)
        for rank, colour in enumerate(schedule_frames.COLOURS[:ranks]):
            assert stripes(svg, colour) == sum(rank in held for row in state for held in row)
        sends = schedule.steps[step - 1] if step else ()
        assert svg.count("marker-end") == len(sends)
        assert svg.count("stroke-dasharray") == sum(send.op == "copy" for send in sends)
        assert f"after step {step} of {len(schedule.steps)}" in svg


def test_an_arrow_goes_from_sender_to_receiver():
    tree = schedules.reduce(2)
    svg = schedule_frames.draw(tree, 1).text
    start, end = re.search(r'd="M(\d+) \d+C.* (\d+) \d+"/><text', svg).groups()
    assert int(start) > schedule_frames.LEFT + schedule_frames.CELL > int(end)


def test_in_words():
    ring = schedules.allreduce_ring(3)
    assert schedule_frames.describe(ring, 0).startswith("ring, 3 ranks, after step 0 of 4. No message. 0 of 9 chunks ")
    words = schedule_frames.describe(ring, 2)
    assert words.startswith("ring, 3 ranks, after step 2 of 4. 0 to 1: reduce chunks 1; 1 to 2: reduce chunks 2; ")
    assert words.endswith("3 of 9 chunks hold all contributions")
    assert "0 to 1: reduce chunks 2–3" in schedule_frames.describe(schedules.allreduce_halving_doubling(4), 1)


def test_empty_cells_are_empty():
    svg = schedule_frames.picture(schedules.promised("reduce", 3, 3), "reduce").text
    assert [stripes(svg, colour) for colour in schedule_frames.COLOURS[:3]] == [3, 3, 3]


def test_past_the_end_nothing_changes_and_too_many_ranks_are_refused():
    ring = schedules.allreduce_ring(3)
    assert schedule_frames.draw(ring, 4).text == schedule_frames.draw(ring, 99).text
    with pytest.raises(ValueError, match="at most 8"):
        schedule_frames.draw(schedules.allreduce_ring(9), 0)
