"""From what a model or a person wrote to a value of a metadata field's type."""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from rapidfuzz import fuzz, process

from haystack_adv_retrieval.core.filter_schema import MetadataField, fold
from haystack_adv_retrieval.core.self_query.periods import Period, parse_period
from haystack_adv_retrieval.core.self_query.quantities import parse_quantity

MAX_LENGTH = 500  # characters of a value: longer ones are no value but an accident
_TRUTH = dict.fromkeys(("true", "yes", "y", "1"), (True,)) | dict.fromkeys(("false", "no", "n", "0"), (False,))
_LARGEST_INT = 2**31 - 1  # PostgreSQL compares metadata as 32-bit integers


@dataclass(frozen=True)
class Exact:
    """
    A text or a truth value.

    :param values: The value; all of them if the field has several that are spelt alike.
    :param certainty: How sure it is that this value was meant, in (0, 1].
    """

    values: tuple[str | bool, ...]
    certainty: float = 1.0
    is_point = True
    partial = False

    @property
    def shown(self) -> str:
        """Say what was understood."""
        return " or ".join(map(str, self.values))


@dataclass(frozen=True)
class Interval:
    """
    A number or a period, by its ends.

    :param low: The least value that it stands for.
    :param high: The greatest value that it stands for, or with `open_end` the first after it.
    :param open_end: Whether `high` is outside.
    :param partial: Whether only a part of it is meant, as a quarter is of its year.
    :param shown: What was understood.
    """

    low: Any
    high: Any
    open_end: bool = False
    partial: bool = False
    shown: str = ""
    certainty = 1.0

    @property
    def is_point(self) -> bool:
        """Tell whether it is a single integer, which every store can compare for equality."""
        return isinstance(self.low, int) and self.low == self.high

    @property
    def is_empty(self) -> bool:
        """Tell whether no value lies in it, as between 4 and 5 no integer does."""
        return not self.low <= self.high


def coerce(field: MetadataField, value: Any, today: date, threshold: float) -> Exact | Interval:
    """
    Turn a value into one of the field's type.

    :param field: The field.
    :param value: Any JSON scalar.
    :param today: The day that relative dates are relative to.
    :param threshold: Likeness in (0, 1] from which on a text counts as a misspelt value of the field.
    :returns: The value.
    :raises ValueError: If it cannot be read as the field's type, with the reason.
    """
    if not isinstance(value, str | int | float | Period):
        raise ValueError("it is neither text nor number")
    if isinstance(value, str):
        value = value.strip()
        if not value or len(value) > MAX_LENGTH or not value.isprintable():
            raise ValueError("the text is empty, too long or not printable")
    try:
        return _COERCIONS[field.type](field, value, today, threshold)
    except OverflowError as error:
        raise ValueError("it is out of range") from error


def _text(field: MetadataField, value: Any, _: date, threshold: float) -> Exact:
    if isinstance(value, bool | Period):
        raise ValueError("it is no text")
    text = str(value)
    if not field.values:
        return Exact((text,), 0.7)
    folded = fold(text)
    if folded in field.spellings:
        return Exact(field.spellings[folded])
    if len(folded) >= 3:
        for scorer, cutoff in ((fuzz.token_set_ratio, 100.0), (fuzz.ratio, 100 * threshold)):
            found = process.extract(folded, field.spellings.keys(), scorer=scorer, score_cutoff=cutoff, limit=None)
            best = {field.spellings[name] for name, score, _ in found if score == found[0][1]}
            if len(best) == 1:
                return Exact(best.pop(), found[0][1] / 100 * 0.9)
    raise ValueError(f"it is none of the values of {field.name!r}")


def _truth(field: MetadataField, value: Any, _: date, __: float) -> Exact:
    folded = fold(str(value))
    known = field.spellings | _TRUTH
    if isinstance(value, float | Period) or folded not in known:
        raise ValueError("it is neither true nor false")
    return Exact(known[folded])


def _number(field: MetadataField, value: Any) -> float:
    if isinstance(value, bool | Period):
        raise ValueError("it is no number")
    if isinstance(value, str):
        return parse_quantity(value).in_unit(field.unit, (field.name, *field.aliases))
    if not math.isfinite(value):
        raise ValueError("it is no finite number")
    return float(value) if isinstance(value, float) else int(value)


def _integer(field: MetadataField, value: Any, today: date, _: float) -> Interval:
    if field.unit == "year" and isinstance(value, str | Period):
        period = value if isinstance(value, Period) else parse_period(value, today)
        (low, high), partial = period.around_years, not period.years
    else:
        number = _number(field, value)
        low, high, partial = math.ceil(number), math.floor(number), False
    largest = field.maximum if isinstance(field.maximum, int) else 0
    if max(abs(low), abs(high), largest) > _LARGEST_INT:
        return _rounded(low, high)
    return Interval(low, high, partial=partial, shown=f"{low}" if low == high else f"{low} to {high}")


def _decimal(field: MetadataField, value: Any, _: date, __: float) -> Interval:
    number = _number(field, value)
    return _rounded(number, number)


def _rounded(low: float, high: float) -> Interval:
    """Widen to the next 32-bit numbers, as which PostgreSQL compares metadata, so that 4.7 stays within [4.7, 4.7]."""
    low, high = float(low), float(high)
    (below,), (above,) = (struct.unpack("<f", struct.pack("<f", end)) for end in (low, high))
    return Interval(min(low, below), max(high, above), shown=f"{low:g}")


def _day(_: MetadataField, value: Any, today: date, __: float) -> Interval:
    if isinstance(value, bool | float):
        raise ValueError("it is no date")
    period = value if isinstance(value, Period) else parse_period(str(value), today)
    start, end = period.start.isoformat(), period.end.isoformat()
    last = (period.end - timedelta(1)).isoformat()
    return Interval(start, end, open_end=True, shown=start if start == last else f"{start} to {last}")


_COERCIONS: dict[str, Callable[[MetadataField, Any, date, float], Exact | Interval]] = {
    "str": _text,
    "list[str]": _text,
    "bool": _truth,
    "int": _integer,
    "float": _decimal,
    "date": _day,
}
