"""What curves say of the levels: on made-up curves whose answer is known, and on those that can't tell."""

import re

import pytest

from d2lmini import host
from d2lmini.host import Cache
from d2lmini.measuring.levels import answered, doubts, size
from d2lmini.measuring.memory_hierarchy import Point
from d2lmini.timing import Measurement

KIB, MIB = 2**10, 2**20
CACHES = (Cache(1, 32 * KIB, 64, 1), Cache(2, MIB, 64, 1), Cache(3, 16 * MIB, 64, 2))


def point(nbytes, seconds, spread=0.01):
    return Point(nbytes, Measurement(tuple(seconds * (1 + spread * (i - 5) / 5) for i in range(11))))


LADDER = [
    point(4 * KIB, 1e-9),
    point(16 * KIB, 1e-9),
    point(24 * KIB, 1.1e-9),
    point(512 * KIB, 4e-9),
    point(2 * MIB, 9e-9),
    point(8 * MIB, 12e-9),
    point(64 * MIB, 100e-9),
    point(128 * MIB, 120e-9),
]


def test_a_level_is_read_in_the_middle_of_its_step():
    """The middles are 16 KiB, √(32 KiB · 1 MiB) = 181 KiB and √(1 MiB · 16 MiB) = 4 MiB."""
    ladder = [*LADDER, point(128 * KIB, 3e-9), point(192 * KIB, 9e-9), point(4 * MIB, 10e-9), point(6 * MIB, 40e-9)]
    assert {name: p.nbytes for name, p in answered(ladder, CACHES).items()} == {
        "L1": 16 * KIB,
        "L2": 128 * KIB,
        "L3": 4 * MIB,
        "main memory": 128 * MIB,
    }


def test_what_was_not_measured_is_left_out():
    """512 KiB are more than the middle of L2's step."""
    for points, caches, found in (
        ([*LADDER[:5], point(15 * MIB, 40e-9)], CACHES, ["L1", "L3", "largest set"]),
        (LADDER[:7], CACHES, ["L1", "L3", "main memory"]),
        ([LADDER[1], LADDER[4]], CACHES[1:2], ["L2", "largest set"]),
        (LADDER[6:], CACHES, ["main memory"]),
        (LADDER, (), ["largest set"]),
    ):
        assert list(answered(points, caches)) == found


def test_a_cache_whose_loads_went_to_main_memory_is_not_among_those_that_answered():
    """A latency of 113 ns in 4 MiB beside 154 ns in main memory is no latency of an L3."""
    ladder = [*LADDER[:3], point(128 * KIB, 4e-9), point(4 * MIB, 113e-9), point(64 * MIB, 154e-9)]
    assert list(answered(ladder, CACHES)) == ["L1", "L2", "main memory"]
    assert list(answered([*ladder[:4], point(4 * MIB, 77e-9), ladder[-1]], CACHES)) == ["L1", "L2", "L3", "main memory"]
    disturbed = Point(4 * MIB, Measurement((12e-9, *[116e-9] * 10)))  # once it was the cache
    assert list(answered([*ladder[:4], disturbed, ladder[-1]], CACHES)) == ["L1", "L2", "L3", "main memory"]
    assert answered(ladder, CACHES)["L2"].nbytes == 128 * KIB
    assert answered(LADDER, ()) == {"largest set": LADDER[-1]}


def ladder_of_l3(*ns):
    """A ladder whose sets from 1.5 to 4 MiB, up to the middle of L3's step, take so many ns a load."""
    sizes = (3 * MIB // 2, 2 * MIB, 3 * MIB, 4 * MIB)
    return [*LADDER[:4], *(point(n, t * 1e-9) for n, t in zip(sizes, ns, strict=True)), *LADDER[6:]]


@pytest.mark.parametrize(
    ("ns", "stands"),
    [
        ((10, 11, 12, 13), 4),
        ((10, 10, 11, 38), 3),
        ((10, 10.5, 24, 38), 2),  # the last ones are on their way to memory
        ((10, 10.5, 110, 113), 2),
        ((10, 10.5, 80, 80), 2),  # flat again, but in main memory
        ((6, 10, 10.5, 11), 4),  # the first is still on the way from L2
        ((10, 13, 17, 22), None),
        ((10, 16, 25, 40), None),
        ((90, 100, 110, 113), None),
    ],
)
def test_a_cache_is_read_on_its_plateau(ns, stands):
    """On curves of which it is known where the loads of L3 begin to be mixed with those of memory."""
    found = answered(ladder_of_l3(*ns), CACHES).get("L3")
    assert (found and found.nbytes) == (stands and stands * MIB)


@pytest.mark.parametrize("virtual", [True, False, None])
def test_a_cache_that_is_as_slow_as_memory_or_larger_than_all_sets_is_doubted(monkeypatch, virtual):
    monkeypatch.setattr(host, "virtual", lambda: virtual)
    slow = [*LADDER[:5], point(8 * MIB, 90e-9), *LADDER[6:]]
    for points, caches, says in (
        (slow, CACHES, "L3 .* 16 MiB, .* 8 MiB .* 75%"),
        (LADDER, (), "nothing"),
        (LADDER, (*CACHES[:2], Cache(3, 480 * MIB, 64, 2)), "L3 .* 480 MiB: .* 4 times"),
    ):
        said, *further = doubts(points, caches)
        assert re.search(says, said)
        assert len(further) == (1 if virtual else 0)
    assert doubts(LADDER, CACHES) == []


def test_sizes_read_well():
    assert [size(n) for n in (1, 1023, 1024, 48 * KIB, 1536 * KIB, 32 * MIB, 3 * 2**30)] == [
        "1 bytes",
        "1023 bytes",
        "1 KiB",
        "48 KiB",
        "1.5 MiB",
        "32 MiB",
        "3 GiB",
    ]
