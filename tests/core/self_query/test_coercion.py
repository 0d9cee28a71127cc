from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.filter_schema import MetadataField
from haystack_adv_retrieval.core.self_query.coercion import Exact, Interval, coerce

TODAY = date(2031, 5, 14)
AUTHOR = MetadataField("author", values={"Mara Lindqvist": [], "Tobias Okafor": ["TO"], "Ines Prado": []})
LANGUAGE = MetadataField("language", values={"de": ["German", "Deutsch"], "en": ["English"], "pt": []})
YEAR = MetadataField("year", "int", unit="year")
PAGES = MetadataField("pages", "int", unit="pages")
PRICE = MetadataField("price", "float", unit="USD", aliases=["cost"])
DAY = MetadataField("published", "date")
STOCK = MetadataField("in_stock", "bool", values={True: ["available"], False: ["sold out"]})


def read(field, value, threshold=0.85):
    return coerce(field, value, TODAY, threshold)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (LANGUAGE, "DE", "de"),
        (LANGUAGE, "german", "de"),
        (LANGUAGE, "Germann", "de"),
        (LANGUAGE, "the German language", "de"),
        (AUTHOR, "okafor", "Tobias Okafor"),
        (AUTHOR, "to", "Tobias Okafor"),
        (AUTHOR, "Prado, Ines", "Ines Prado"),
        (AUTHOR, "Mara Lindquist", "Mara Lindqvist"),
        (MetadataField("code"), 7, "7"),
        (MetadataField("code"), " as is ", "as is"),
        (STOCK, "yes", True),
        (STOCK, "Sold Out", False),
        (STOCK, "in stock", True),
        (STOCK, 0, False),
        (STOCK, False, False),
    ],
)
def test_texts_and_truth_values(field, value, expected):
    result = read(field, value)
    assert isinstance(result, Exact)
    assert result.values == (expected,)
    assert type(result.values[0]) is type(expected)


@pytest.mark.parametrize("said", ["MEMO", "memo", "note", "memmo"])
def test_values_that_are_spelt_alike_are_one(said):
    field = MetadataField("type", values={"Memo": [], "memo": ["note"], "-memo-": [], "letter": []})
    assert read(field, said).values == ("Memo", "memo", "-memo-")


@pytest.mark.parametrize(
    ("field", "value", "low", "high"),
    [
        (YEAR, 2023, 2023, 2023),
        (YEAR, "2023", 2023, 2023),
        (YEAR, "last year", 2030, 2030),
        (YEAR, "the 2010s", 2010, 2019),
        (YEAR, "Q3 2023", 2023, 2023),
        (YEAR, "last 6 months", 2030, 2031),
        (PAGES, "2 thousand", 2000, 2000),
        (PAGES, 3.0, 3, 3),
        (PAGES, 2.5, 3, 2),  # at least 2.5 is at least 3, at most 2.5 is at most 2, and nothing equals it
        (PAGES, 5_000_000_000, 5e9, 5e9),
        (PRICE, 4.5, 4.5, 4.5),
        (PRICE, "$1.2k", 1200.0, 1200.0),
        (PRICE, "3 million", 3e6, 3e6),
        (DAY, "2031-03-02", "2031-03-02", "2031-03-03"),
        (DAY, "Q3 2030", "2030-07-01", "2030-10-01"),
        (DAY, 2030, "2030-01-01", "2031-01-01"),
    ],
)
def test_numbers_and_periods_become_intervals(field, value, low, high):
    result = read(field, value)
    assert isinstance(result, Interval)
    assert (result.low, result.high) == (low, high)
    assert type(result.low) is type(low)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (LANGUAGE, "Klingon"),
        (LANGUAGE, "e"),
        (LANGUAGE, None),
        (LANGUAGE, {"a": 1}),
        (LANGUAGE, True),
        (MetadataField("author", values=["Ann Roe", "Bea Roe"]), "Roe"),
        (MetadataField("code"), ""),
        (MetadataField("code"), "a\x00b"),
        (MetadataField("code"), "line\nbreak"),
        (MetadataField("code"), "\ud800"),
        (MetadataField("code"), "x" * 501),
        (YEAR, "soon"),
        (PAGES, True),
        (PAGES, "20 kg"),
        (PAGES, float("nan")),
        (PAGES, float("inf")),
        (PAGES, 10**400),
        (PRICE, 1e300),
        (PRICE, "7 euros"),
        (DAY, "03/04/2021"),
        (DAY, "2031-02-30"),
        (DAY, True),
        (DAY, 1e9),
        (STOCK, "perhaps"),
        (STOCK, 2),
    ],
)
def test_what_cannot_be_understood_is_refused(field, value):
    with pytest.raises(ValueError, match=r"."):
        read(field, value)


def test_a_guess_is_less_certain_than_a_name():
    assert read(LANGUAGE, "German").certainty == 1.0
    assert 0.5 < read(LANGUAGE, "Germann").certainty < 0.9
    assert read(MetadataField("code"), "anything").certainty < 1


def test_the_threshold_decides_what_counts_as_misspelt():
    assert read(LANGUAGE, "Englsh", threshold=0.85).values == ("en",)
    with pytest.raises(ValueError, match="none of the values"):
        read(LANGUAGE, "Englsh", threshold=0.95)


def test_a_wide_field_is_compared_in_decimals_throughout():
    wide = MetadataField("revenue", "int", maximum=9_000_000_000)
    assert isinstance(read(wide, 100).low, float)


@given(st.floats(-1e30, 1e30))
def test_a_decimal_lies_within_its_interval_even_when_stored_with_32_bits(number):
    import struct

    interval = read(PRICE, number)
    (single,) = struct.unpack("<f", struct.pack("<f", number))
    assert interval.low <= number <= interval.high
    assert interval.low <= single <= interval.high


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


@given(st.sampled_from([AUTHOR, LANGUAGE, YEAR, PAGES, PRICE, DAY, STOCK]), SCALARS)
def test_anything_is_coerced_or_a_value_error(field, value):
    try:
        result = read(field, value)
    except ValueError:
        return
    assert isinstance(result, Exact | Interval)
    assert 0 < result.certainty <= 1
