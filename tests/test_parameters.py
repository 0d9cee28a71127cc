import math
from typing import Literal

import pytest

from haystack_adv_retrieval.parameters import check_at_least, check_choice, check_positive, check_scoring

Unit = Literal["character", "word"]


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1"])
def test_a_number_below_its_minimum_is_refused_by_name_and_value(value):
    with pytest.raises(ValueError, match=f"top_k must be a whole number of at least 1, got {value!r}"):
        check_at_least(1, window_size=1, top_k=value)


@pytest.mark.parametrize("value", [0, -1, -0.5, math.nan, True, "60"])
def test_a_number_that_is_not_positive_is_refused_by_name_and_value(value):
    with pytest.raises(ValueError, match=f"timeout must be positive, got {value!r}"):
        check_positive(max_age=0.5, timeout=value)


def test_a_number_that_is_not_set_is_not_checked():
    check_at_least(1, top_k=None, max_length=1)
    check_positive(timeout=None, max_age=math.inf)


def test_a_choice_is_refused_by_name_and_value():
    check_choice("length_unit", "word", Unit)
    with pytest.raises(ValueError, match=r"length_unit must be one of \('character', 'word'\), got 'page'"):
        check_choice("length_unit", "page", Unit)


def test_what_evidence_cannot_be_scored_with_is_refused_by_name_and_value():
    check_scoring([2, 6], lexical_weight=0.0)
    for scales, weight, message in [
        (5, 1.0, "scales must be positive whole numbers, got 5"),
        ([2, 0], 1.0, r"scales must be positive whole numbers, got \[2, 0\]"),
        ([2], -0.1, "lexical_weight must be at least 0, got -0.1"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_scoring(scales, lexical_weight=weight)
