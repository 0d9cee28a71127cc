from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.self_query.periods import Period, find_periods, parse_period, time_ago

TODAY = date(2031, 5, 14)  # a Wednesday
ROWS = (Path(__file__).parents[2] / "data" / "self_query" / "periods.tsv").read_text().splitlines()


@pytest.mark.parametrize("row", [row.split("\t") for row in ROWS if row], ids=lambda row: row[0])
def test_a_text_is_read_as_the_period_it_says(row):
    text, *ends = row
    if ends:
        assert parse_period(text, TODAY) == Period(*map(date.fromisoformat, ends))
    else:
        with pytest.raises(ValueError, match=r"."):
            parse_period(text, TODAY)


def test_periods_are_found_where_they_stand():
    text = "from June 2029 to Q3 2030, 2025-2027, on 3 March 2031 or the last 2 years; not 1.2030, 3-14 or 20301"
    found = sorted((text[start:end], period.start.isoformat()) for start, end, period in find_periods(text, TODAY))
    assert found == [
        ("2025", "2025-01-01"),
        ("2027", "2027-01-01"),
        ("3 March 2031", "2031-03-03"),
        ("June 2029", "2029-06-01"),
        ("Q3 2030", "2030-07-01"),
        ("the last 2 years", "2029-05-14"),
    ]


def test_an_impossible_date_is_not_found_and_no_part_of_it_is():
    assert list(find_periods("due 2031-02-30 or 31 April 2031", TODAY)) == []


def test_whole_years_are_told_from_parts():
    assert parse_period("the 2010s", TODAY).years == (2010, 2019)
    assert parse_period("2024", TODAY).years == (2024, 2024)
    assert parse_period("H1 2024", TODAY).years is None


def test_time_ago_counts_in_calendar_units():
    assert time_ago(3, "years", TODAY).start == date(2028, 5, 14)
    assert time_ago(1, "quarter", date(2031, 5, 31)).start == date(2031, 2, 28)
    with pytest.raises(ValueError, match=r"whole"):
        time_ago(1.5, "years", TODAY)
    with pytest.raises(ValueError, match="kg"):
        time_ago(3, "kg", TODAY)


@given(st.dates(min_value=date(1000, 1, 1), max_value=date(2999, 12, 31)))
def test_an_iso_date_is_its_own_day(day):
    assert parse_period(day.isoformat(), TODAY) == Period(day, day + timedelta(1))


@given(st.text(max_size=80) | st.from_regex(r"\A[0-9 /.:TZ+-]{0,20}\Z"), st.dates())
def test_any_text_is_a_forward_period_or_a_value_error(text, today):
    try:
        period = parse_period(text, today)
    except ValueError:
        return
    assert period.start < period.end


@given(st.text(alphabet="2031-/. QH14MarchMaylstweko0s'", max_size=60), st.dates())
def test_periods_found_never_overlap(text, today):
    found = sorted(find_periods(text, today), key=lambda piece: piece[0])
    assert all(one[1] <= other[0] for one, other in pairwise(found))


def test_linked_periods_share_the_year():
    text = "in June, July and August 2029, from Q1 to Q3 2030; March or last year; December to January"
    found = {text[start:end]: period.start.isoformat() for start, end, period in find_periods(text, TODAY)}
    assert found == {
        "June": "2029-06-01",
        "July": "2029-07-01",
        "August 2029": "2029-08-01",
        "Q1": "2030-01-01",
        "Q3 2030": "2030-07-01",
        "March": "2030-03-01",
        "last year": "2030-01-01",
        "December": "2030-12-01",
        "January": "2031-01-01",
    }
    assert list(find_periods("29 February and March 2029", TODAY))  # there is no such day
