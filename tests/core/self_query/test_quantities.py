import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.self_query.quantities import FILLER, digits, parse_quantity

ROWS = (Path(__file__).parents[2] / "data" / "self_query" / "quantities.tsv").read_text().splitlines()


@pytest.mark.parametrize("row", [row.split("\t") for row in ROWS if row], ids="|".join)
def test_a_quantity_is_converted_to_the_unit_of_the_field(row):
    text, unit, value = row
    if value:
        assert parse_quantity(text).in_unit(unit) == float(value)
    else:
        with pytest.raises(ValueError, match=r"."):
            parse_quantity(text).in_unit(unit)


def test_the_names_of_a_field_count_as_its_unit():
    assert parse_quantity("500 calories").in_unit("kcal", ["calories", "energy"]) == 500


def test_number_words_become_digits_at_the_same_place():
    text = "more than six people, two hundred dollars, 1.5 million, the second half, five-star"
    changed = digits(text)
    assert len(changed) == len(text)
    assert changed.replace(FILLER, "") == "more than 6 people, 200 dollars, 1.5 million, the second half, 5-star"
    assert changed.index("people") == text.index("people")
    assert digits("a\ud800 two\udfff b") == f"a\ud800 2{FILLER}{FILLER}\udfff b"


@given(
    st.text(max_size=100) | st.lists(st.sampled_from(["two", "hundred", "and", "million", "fifty", "12"])).map(" ".join)
)
def test_places_never_move(text):
    assert len(digits(text)) == len(text)


@given(st.text(max_size=40), st.sampled_from(["", "kg", "USD", "minutes", "pages", "%"]))
def test_any_text_is_a_number_or_a_value_error(text, unit):
    try:
        value = parse_quantity(text).in_unit(unit)
    except ValueError:
        return
    assert math.isfinite(value)
