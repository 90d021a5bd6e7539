"""Questions: every answer has its reply, only the right one is told Yes, and a browser shows one reply at a time."""

import math
from xml.etree import ElementTree

import pytest

from d2lmini.figures import ask, predict

REPLIES = {"half": "A step also has `n < 2` parts.", "the same": "Both copy at once.", "twice & more": "They queue."}


def test_html_holds_every_reply_and_one_yes():
    root = ElementTree.fromstring(ask("How <long>?", REPLIES, "the same")._repr_html_())
    assert root.find("p").text == "How <long>?"
    assert root.get("aria-labelledby") == root.find("p").get("id")
    assert [answer.find("summary").text for answer in root.iter("details")] == list(REPLIES)
    assert [answer.find("p/strong").text for answer in root.iter("details")] == ["No.", "Yes.", "No."]
    assert root.find("details/p/code").text == "n < 2"
    assert len({answer.get("name") for answer in root.iter("details")}) == 1


def test_text_does_not_tell_the_answer():
    assert repr(ask("How long?", REPLIES, "half")) == "How long?\n  ( ) half\n  ( ) the same\n  ( ) twice & more"


def test_two_questions_are_apart_and_the_same_one_is_the_same():
    html = [ask(question, REPLIES, "half")._repr_html_() for question in ("How long?", "How far?", "How long?")]
    assert html[0] == html[2] != html[1]
    assert ElementTree.fromstring(html[0]).find("p").get("id") not in html[1]


def test_a_question_without_a_choice_or_a_right_answer_is_refused():
    with pytest.raises(ValueError, match="two"):
        ask("How long?", {"half": "."}, "half")
    with pytest.raises(ValueError, match="'never'"):
        ask("How long?", REPLIES, "never")


def test_a_prediction_holds_its_number_and_folds_it_away():
    root = ElementTree.fromstring(predict("How <long>?", 1234.56, "ms", within=3, why="`n < 2`.")._repr_html_())
    assert [root.get(f"data-{name}") for name in ("answer", "unit", "within")] == ["1230", "ms", "3"]
    assert root.find("p").text == "How <long>?"
    assert root.find("details/p/strong").text == "1,230 ms."
    assert root.find("details/p/code").text == "n < 2"


def test_a_prediction_as_text_does_not_tell_the_answer():
    assert repr(predict("How long?", 4.2, "ms")) == "How long?\n  ____ ms (right within a factor of 2)"
    assert repr(predict("How many?", 4)) == "How many?\n  ____ (right within a factor of 2)"


@pytest.mark.parametrize(("answer", "within"), [(0, 2), (-1, 2), (math.nan, 2), (math.inf, 2), (3, 1), (3, 0.5)])
def test_a_prediction_that_cannot_be_judged_is_refused(answer, within):
    with pytest.raises(ValueError, match="above"):
        predict("How long?", answer, "ms", within)
