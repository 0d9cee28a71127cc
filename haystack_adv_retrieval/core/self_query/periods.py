"""Periods of time in words or digits, as half-open ranges of days: "Q3 2023", "last month", "2 March", "the 2010s"."""

import calendar
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from dateutil import parser
from dateutil.relativedelta import relativedelta

_STEP = {
    "day": relativedelta(days=1),
    "week": relativedelta(weeks=1),
    "month": relativedelta(months=1),
    "quarter": relativedelta(months=3),
    "year": relativedelta(years=1),
    "decade": relativedelta(years=10),
}
_FLOOR: dict[str, Callable[[date], date]] = {
    "day": lambda day: day,
    "week": lambda day: day - timedelta(day.weekday()),
    "month": lambda day: day.replace(day=1),
    "quarter": lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
    "year": lambda day: day.replace(month=1, day=1),
    "decade": lambda day: day.replace(year=day.year // 10 * 10, month=1, day=1),
}
_MONTHS = {name.casefold(): number for number, name in enumerate(calendar.month_name) if name}
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
_WEEKDAYS = {name.casefold(): number for number, name in enumerate(calendar.day_name)}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": 0, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4}
_PARTS = {"q": 3, "h": 6}  # quarter and half: how many months
_SHIFTS = {"this": 0, "current": 0, "last": -1, "previous": -1, "past": -1, "next": 1}
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}


@dataclass(frozen=True)
class Period:
    """
    A range of days.

    :param start: The first day.
    :param end: The day after the last one.
    """

    start: date
    end: date

    @classmethod
    def around(cls, day: date, unit: str = "day") -> "Period":
        """Make the calendar day, week, month, quarter, year or decade that a day is in."""
        start = _FLOOR[unit](day)
        return cls(start, start + _STEP[unit])

    @property
    def years(self) -> tuple[int, int] | None:
        """The first and the last year, if the period is made of whole years."""
        whole = (self.start.month, self.start.day, self.end.month, self.end.day) == (1, 1, 1, 1)
        return self.around_years if whole else None

    @property
    def around_years(self) -> tuple[int, int]:
        """The first and the last year that the period has a day in."""
        return self.start.year, (self.end - timedelta(1)).year


_Groups = dict[str, str]

LINK = r"\s*(?:,|and|or|&|(?P<to>to|through|until|till|[-–—]))\s*(?:in\s+|the\s+)?"  # between two periods
_LINKED = re.compile(LINK, re.IGNORECASE)
_DATED = re.compile(r"\d{4}|ago|day|\b(?:this|current|last|previous|past|next|tomorrow)\b", re.IGNORECASE)


def _part_of_year(months: int, number: int, year: str | None, today: date) -> Period:
    """Make the n-th month, quarter or half of a year (0: the last); without a year, the latest one that has begun."""
    start = date(int(year or today.year), ((number or 12 // months) - 1) * months + 1, 1)
    if not year and start > today:
        start -= _STEP["year"]
    return Period(start, start + relativedelta(months=months))


def _quarter_or_half(said: _Groups, today: date) -> Period:
    number = _ORDINALS.get(said["n"]) if said["n"] in _ORDINALS else int(said["n"])
    return _part_of_year(_PARTS[said["part"][0]], number or 0, said.get("y"), today)


def _month_or_day(said: _Groups, today: date) -> Period:
    month = _part_of_year(1, _MONTHS[said["month"]], said.get("y"), today)
    day = said.get("before") or said.get("after")
    return Period.around(month.start.replace(day=int(day))) if day else month


def _day_and_month(said: _Groups, _: date) -> Period:
    first, second = int(said["first"]), int(said["second"])
    if first <= 12 and second <= 12 and first != second:
        raise ValueError("the date can be read as day and month or as month and day")
    return Period.around(date(int(said["y"]), *((first, second) if second > 12 else (second, first))))


def _decade(said: _Groups, today: date) -> Period:
    year = int(said["y"])
    return Period.around(date(year if year > 99 else year + (today.year - year) // 100 * 100, 1, 1), "decade")


def _weekday(said: _Groups, today: date) -> Period:
    return Period.around(today - timedelta((today.weekday() - _WEEKDAYS[said["weekday"]]) % 7 or 7))


# Not a part of a longer number or date, but perhaps one end of "2025-2027".
_ALONE = r"(?<![\w.,/])(?:(?<!\d-)|(?<=\b\d{4}-))", r"(?![\w/]|[.,]\d|-\d(?!\d{3}\b))"
_UNIT = rf"(?P<unit>{'|'.join(_STEP)})"
_YEAR = r"(?P<y>[12]\d{3})"
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_TH = r"(?:st|nd|rd|th)?"
# How a period is written, and what it means; a form stands before those that match a part of it.
_FORMS: list[tuple[re.Pattern[str], Callable[[_Groups, date], Period]]] = [
    (re.compile(rf"{_ALONE[0]}(?:the )?{form}{_ALONE[1]}".replace(" ", r"\s+"), re.IGNORECASE), read)
    for form, read in (
        (
            r"(?P<y>\d{4})[-/](?P<m>\d\d?)[-/](?P<d>\d\d?)(?:[T\s]\d\d:\d\d\S*)?",
            lambda said, _: Period.around(date(int(said["y"]), int(said["m"]), int(said["d"]))),
        ),
        (r"(?P<y>\d{4})-(?P<m>\d\d)", lambda said, _: Period.around(date(int(said["y"]), int(said["m"]), 1), "month")),
        (r"(?P<first>\d\d?)[/.-](?P<second>\d\d?)[/.-](?P<y>\d{4})", _day_and_month),
        (rf"{_YEAR}[\s-]?(?P<part>[QH])(?P<n>[1-4])", _quarter_or_half),
        (rf"(?P<part>[QH])(?P<n>[1-4])(?:[\s,/-]*(?:of )?{_YEAR})?", _quarter_or_half),
        (rf"(?P<n>first|second|1st|2nd|last) (?P<part>half)(?: of| in)? {_YEAR}", _quarter_or_half),
        (rf"(?P<n>{'|'.join(_ORDINALS)}) (?P<part>quarter)(?: of| in)? {_YEAR}", _quarter_or_half),
        (rf"{_YEAR}(?:'s)? (?P<n>{'|'.join(_ORDINALS)}) (?P<part>quarter)", _quarter_or_half),
        (r"(?P<n>first|second|third|fourth|[1-4](?:st|nd|rd|th)) (?P<part>quarter)", _quarter_or_half),
        (
            rf"(?:(?P<before>\d\d?){_TH} (?:of )?)?{_MONTH}(?: (?P<after>\d\d?){_TH}(?![\d.:]))?"
            rf"(?:,? (?:of )?{_YEAR})?",
            _month_or_day,
        ),
        (r"'?(?P<y>[12]\d\d0|\d0)s", _decade),
        (
            rf"(?P<shift>{'|'.join(_SHIFTS)}) {_UNIT}",
            lambda said, today: Period.around(today + _SHIFTS[said["shift"]] * _STEP[said["unit"]], said["unit"]),
        ),
        (rf"(?P<day>{'|'.join(_DAYS)})", lambda said, today: Period.around(today + timedelta(_DAYS[said["day"]]))),
        (
            rf"(?:last|past|previous) (?P<n>\d{{1,4}}) {_UNIT}s?",
            lambda said, today: Period(today - int(said["n"]) * _STEP[said["unit"]], today + _STEP["day"]),
        ),
        (
            rf"(?P<n>\d{{1,4}}) {_UNIT}s? ago",
            lambda said, today: Period.around(today - int(said["n"]) * _STEP[said["unit"]], said["unit"]),
        ),
        (rf"(?:last )?(?P<weekday>{'|'.join(_WEEKDAYS)})", _weekday),
        # A third of a year is nothing to rely on: the whole year is the safe reading of "early 2023".
        (
            rf"(?:(?:early|mid|late)[\s-](?:in )?)?{_YEAR}",
            lambda said, _: Period.around(date(int(said["y"]), 1, 1), "year"),
        ),
    )
]


def is_calendar_unit(unit: str) -> bool:
    """Tell whether a word is "day", "week", "month", "quarter", "year" or "decade", perhaps in the plural."""
    return unit.casefold().removesuffix("s") in _STEP


def time_ago(number: float, unit: str, today: date) -> Period:
    """
    Find the day that was some time ago.

    :param number: How many units.
    :param unit: Of which kind.
    :param today: The day to count from.
    :returns: That day.
    :raises ValueError: If the unit is no calendar unit.
    """
    if not is_calendar_unit(unit) or number != int(number):
        raise ValueError(f"{number:g} {unit} are no whole days, weeks, months or years")
    return Period.around(today - int(number) * _STEP[unit.casefold().removesuffix("s")])


def find_periods(text: str, today: date) -> Iterator[tuple[int, int, Period]]:
    """
    Find the periods in a text. In "June and July 2029", June has the year that July has.

    :param text: Any text.
    :param today: The day that "last week" is relative to.
    :returns: Start and end in the text, and the period; none overlaps another.
    """
    taken = bytearray(len(text))
    found: list[tuple[int, int, Period]] = []
    for form, read in _FORMS:
        for match in form.finditer(text):
            start, end = match.span()
            if not any(taken[start:end]):
                taken[start:end] = bytes([1]) * (end - start)
                with suppress(ValueError, OverflowError):
                    found.append((start, end, read(_said(match), today)))
    after: tuple[int, int, Period] | None = None
    for start, end, period in sorted(found, reverse=True, key=lambda one: one[0]):
        link = after and not _DATED.search(text, start, end) and _LINKED.fullmatch(text, end, after[0])
        after = start, end, _before(after[2], text[start:end], link["to"]) if after and link else period
        yield after


def _before(after: Period, text: str, to: str | None) -> Period:
    """Read a period that leads to another, in the same year; "December to January" begins in the year before."""
    try:
        period = parse_period(text, date(after.start.year, 12, 31))
        return parse_period(text, date(after.start.year - 1, 12, 31)) if to and period.start > after.start else period
    except ValueError:
        return after


def parse_period(text: str, today: date) -> Period:
    """
    Read a text as one period.

    :param text: A date or a period in English or in digits.
    :param today: The day that "last week" is relative to.
    :returns: The period.
    :raises ValueError: If it is none, or can be read as two.
    """
    text = " ".join(text.split())
    try:
        for form, read in _FORMS:
            if match := form.fullmatch(text):
                return read(_said(match), today)
        return _other_form(text)
    except OverflowError as error:
        raise ValueError("the date is out of range") from error


def _said(match: re.Match[str]) -> _Groups:
    """Fold what was matched; to regular expressions an i with or without its dot is the same, whatever its case."""
    folded = {name: (group or "").casefold() for name, group in match.groupdict().items()}
    return {name: group.replace("ı", "i").replace("\u0307", "") for name, group in folded.items() if group}


def _other_form(text: str) -> Period:
    """Read what dateutil can ("Sun, 02 Mar 2031 09:30 GMT"); which parts were given shows in two readings."""
    if len(text) > 60 or not re.search(r"[12]\d{3}", text):
        raise ValueError("it is no date or period")
    one, other = (parser.parse(text, default=datetime(*missing)) for missing in ((2000, 1, 1), (2004, 2, 2)))
    if one.year != other.year:
        raise ValueError("it is a date without a year")
    return Period.around(one.date(), "day" if one.day == other.day else "month" if one.month == other.month else "year")
