import math
from typing import Any

import pytest

from haystack_adv_retrieval.core.replies.grades import expected_grade, read_grade


@pytest.mark.parametrize(
    ("text", "relevance"),
    [
        ("0", 0),
        ("3", 1),
        (" **2**. ", 2 / 3),
        ("Grade: 1", 1 / 3),
        ("The relevance score is 3.", 1),
        ("2/3", 2 / 3),
        ("1 out of 3", 1 / 3),
        ("[2]", 2 / 3),
        ("2 (it names 3 grains)", 2 / 3),
        ("2 - it names 3 grains", 2 / 3),
        ("3\n\nBecause it has 2 grains.", 1),
        ("It names 3 grains and 1 brewer.\nGrade: 2", 2 / 3),
        ('```json\n{"grade": "3", "reason": "1 hint"}\n```', 1),
        ("<think>1? 2?</think>0", 0),
        ("Yes", 1),
        ("No, it does not.", 0),
        ("Not  relevant", 0),
        ("Relevant: it says so.", 1),
    ],
)
def test_a_judgement_is_read(text: str, relevance: float) -> None:
    assert read_grade(text) == (relevance, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "10",
        "2.5",
        "2-3",
        "2 or 3",
        "3 passages",
        "3/10",
        "None",
        "No answer",
        "Grade: 2 or Grade: 3",
        "<think>3",
    ],
)
def test_a_number_that_may_be_no_grade_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="it states"):
        read_grade(text)


def token(text: str, **alternatives: float) -> dict[str, Any]:
    named = {"zero": "0", "one": "1", "two": " 2", "three": "3", "yes": "Yes", "no": "no", "other": "x"}
    top = [{"token": named[name], "logprob": math.log(share)} for name, share in alternatives.items()]
    return {"token": text, "logprob": -0.1, "top_logprobs": top}


def test_the_probabilities_of_the_grades_make_the_score() -> None:
    assert expected_grade(2 / 3, "2", [token("2", two=0.5, three=0.25, other=0.25)]) == pytest.approx(
        (2 / 3 * 2 + 1) / 3
    )


def test_probabilities_of_yes_and_no_do_not_mix_with_digits() -> None:
    assert expected_grade(1, "Yes", [token("Yes", yes=0.6, no=0.2, three=0.2)]) == pytest.approx(0.75)


def test_tokens_of_thoughts_and_of_the_explanation_do_not_count() -> None:
    thought, end, grade = token("2", two=1), token("</think>"), token("2", two=0.5, zero=0.5)
    later = token("2", two=1)
    assert expected_grade(2 / 3, "2 2", [thought, end, grade, token(" "), later]) == pytest.approx(1 / 3)


def test_without_probabilities_the_grade_is_the_score() -> None:
    assert expected_grade(2 / 3, "2", []) == 2 / 3
    assert expected_grade(2 / 3, "2", [{"token": "2"}]) == 2 / 3
    assert expected_grade(2 / 3, "Grade two", [token("Grade"), token(" two")]) == 2 / 3
