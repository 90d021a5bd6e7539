"""Tables: the same cells as text and as HTML, numbers to the right."""

from xml.etree import ElementTree

import pytest

from d2lmini.figures import table

ROWS = [("ring", 12, "1.25 ms"), ("tree <b>", 8, "10.5 ms")]


def test_text_is_aligned_and_numbers_stand_to_the_right():
    assert repr(table(["way", "copies", "time"], ROWS)) == (
        "way       copies     time\nring          12  1.25 ms\ntree <b>       8  10.5 ms"
    )


def test_html_has_the_same_cells_escaped():
    root = ElementTree.fromstring(table(["way", "copies", "time"], ROWS, "Two ways")._repr_html_())
    assert [cell.text for cell in root.iter("th")] == ["way", "copies", "time"]
    assert [[cell.text for cell in row.iter("td")] for row in root.find("tbody")] == [[str(c) for c in r] for r in ROWS]
    assert root.find("caption").text == "Two ways"
    assert ["right" in cell.get("style") for cell in root.find("tbody")[0]] == [False, True, True]


@pytest.mark.parametrize(
    ("cells", "side"),
    [
        (["-3%", "+1,024 ", "−1.5e-07"], "right"),
        (["16 KiB", "1.5 µs (+2%)"], "right"),
        (["3B", ""], "right"),
        (["–", "2"], "right"),
        (["–", "yes"], "left"),
        (["1", "one"], "left"),
        (["2 nodes: 8 GPUs", "4"], "left"),
        (["0 to 3", "12 to 15"], "left"),
        ([""], "left"),
    ],
)
def test_a_column_of_numbers_with_units_stands_to_the_right_and_text_that_begins_with_one_does_not(cells, side):
    assert f"text-align: {side}" in table(["a"], [[cell] for cell in cells])._repr_html_()


def test_a_row_below_another_keeps_its_indent():
    shown = table(["layout"], [["8 stages"], ["  2 chunks"]])
    assert "\n  2 chunks" in repr(shown)
    assert ">8 stages<" in shown._repr_html_()
    assert ">&emsp;2 chunks<" in shown._repr_html_()


def test_no_rows_and_rows_of_another_length():
    assert repr(table(["a", "b"], [])) == "a  b"
    with pytest.raises(ValueError, match="row 1"):
        table(["a", "b"], [(1, 2), (1, 2, 3)])
