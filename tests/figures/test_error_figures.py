"""Figures about errors: where the dots lie, and which of them are named."""

import pytest

from d2lmini.figures import error_figures


def dots(figure):
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in figure.axes[0].lines if line.get_marker() == "o"]


def test_a_group_is_a_line_of_dots_and_a_crowd_is_spread():
    figure = error_figures.factors(
        {"one": [(1.2, ""), (0.9, "")], "crowd": [(f, "") for f in (1, 1.02, 1.03, 1.01)]}, [0.5, 1, 2], 1.5
    )
    assert dots(figure)[:2] == [(0.9, 0), (1.2, 0)]
    assert [x for x, _ in dots(figure)[2:]] == [1, 1.01, 1.02, 1.03]
    assert len({y for _, y in dots(figure)[2:]}) == 2
    assert all(abs(y - 1) < 0.3 for _, y in dots(figure)[2:])


@pytest.mark.parametrize(("factor", "named"), [(1.6, "right"), (1 / 1.6, "left"), (1.4, None), (1 / 1.4, None)])
def test_a_dot_far_from_one_is_named_towards_the_middle(factor, named):
    texts = error_figures.factors({"g": [(factor, "name")]}, [0.5, 1, 2], 1.5).axes[0].texts
    assert [(text.get_text(), text.get_ha()) for text in texts] == [("name", named)] * (named is not None)


def test_held_out_marks_are_triangles_and_no_two_marks_overlap():
    marks = [(1 + i / 500, "", i % 3 == 0) for i in range(12)] + [(0.5, "far", False), (0.52, "far", False)]
    ax = error_figures.held_out({"crowd": marks}, [0.5, 1, 2], 1.2, 1.5).axes[0]
    spots = [(line.get_marker(), *line.get_ydata()) for line in ax.lines if len(line.get_ydata()) == 1]
    assert [mark for mark, _ in spots].count("^") == 4
    assert len({round(y, 3) for _, y in spots[:12]}) >= 10  # twelve factors within 3 % stand above each other
    assert [text.get_text() for text in ax.texts] == ["far"]
    labels = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert labels == ["within 1.2×", "10 fitted", "4 held out"]
