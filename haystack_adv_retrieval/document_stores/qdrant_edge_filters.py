"""
Haystack filters as native ones of the engine, with Haystack's semantics.

The engine's own conditions on metadata mean something else (any element of a list matches, `1` is not `1.0`, naive
dates are UTC). So each document is written with *facts*: a hash per metadata field and value, such that values that
Haystack holds for equal have the same hash. They form one text, whose index answers every equality on every field.
Ranges read numbers and dates that are stored beside it. What is left, mostly ranges over text or mixed types, has no
native form: `native` then raises `NotNative`, and the caller checks documents in Python.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from hashlib import blake2b
from math import inf
from typing import Any

import dateutil.parser
import qdrant_edge as engine
from haystack import Document
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter

from haystack_adv_retrieval.document_stores.qdrant_edge_shards import FACTS

NOTHING = engine.Filter(must=[engine.HasIdCondition(set())])
EVERYTHING = engine.Filter()

# Kinds of values. None is the same as a missing field and of no kind.
NUMBER, DATE, OTHER = "number", "date", "other"
# Payload keys of what ranges compare: numbers, and of dates microseconds: the instant and the wall clock of those with
# a time zone, the wall clock of those without.
INSTANT, WALL, NAIVE = "instant", "wall", "naive"

_EPOCH = datetime(1970, 1, 1)
_DOCUMENT_FIELDS = frozenset(field.name for field in fields(Document))
_BOUNDS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:$|[Tt ])")
_EXACT = 2**53  # integers below it are exact as floats


class NotNative(Exception):  # noqa: N818 - not an error
    """The engine cannot express this filter exactly."""


def point_id(document_id: str) -> str:
    """Compute the id of a document's point."""
    return blake2b(document_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def filterable(meta: Mapping[str, Any]) -> dict[str, Any]:
    """
    Compute the part of a document's payload that filters read.

    :param meta: Metadata, as JSON values.
    :returns: `facts`, and the numbers and dates by field.
    """
    payload: dict[str, Any] = {}
    facts: list[str] = []
    for path, value in _fields(meta):
        facts += [_fact(path, text) for text in _texts(value)]
        kind = OTHER
        if isinstance(value, int | float):
            if abs(value) < _EXACT:
                kind = NUMBER
                payload.setdefault(NUMBER, {})[_key(path)] = float(value)
        elif (date := _iso_date(value)) and _strict_date(value):
            kind = DATE
            for name, number in _microseconds(date).items():
                payload.setdefault(name, {})[_key(path)] = number
        facts.append(_fact(path, kind))
    payload[FACTS] = " ".join(facts)
    return payload


def native(
    filters: Mapping[str, Any], exists: Callable[[engine.Filter], bool], index_range: Callable[[str], None]
) -> engine.Filter:
    """
    Translate a filter.

    :param filters: A Haystack filter.
    :param exists: Tells whether any document matches a native filter.
    :param index_range: Called with each payload key that a range is about to read.
    :returns: The native filter that matches exactly what Haystack's would.
    :raises FilterError: If the filter is malformed.
    :raises NotNative: If the engine cannot express it.
    """
    if "field" in filters:
        return _comparison(filters, exists, index_range)
    for key in ("operator", "conditions"):
        if key not in filters:
            raise FilterError(f"'{key}' key missing in {filters}")
    operator = filters["operator"]
    if operator not in ("AND", "OR", "NOT"):
        raise FilterError(f"Unknown logical operator '{operator}'. Valid operators are: ['AND', 'NOT', 'OR']")
    parts = [native(condition, exists, index_range) for condition in filters["conditions"]]
    if operator == "OR":
        return engine.Filter(should=list(parts)) if parts else NOTHING
    whole = engine.Filter(must=list(parts))
    return whole if operator == "AND" else engine.Filter(must_not=[whole])


def leading(filters: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the conditions of a top-level AND in the order in which Haystack evaluates them."""
    if filters.get("operator") == "AND" and "field" not in filters:
        yield from filters.get("conditions", ())


def _comparison(
    condition: Mapping[str, Any], exists: Callable[[engine.Filter], bool], index_range: Callable[[str], None]
) -> engine.Filter:
    for key in ("operator", "value"):
        if key not in condition:
            raise FilterError(f"'{key}' key missing in {condition}")
    field, operator, value = condition["field"], condition["operator"], condition["value"]
    if operator not in ("==", "!=", "in", "not in", *_BOUNDS):
        raise FilterError(f"Unknown comparison operator '{operator}'.")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise FilterError(f"Filter value must be a `list` when using operator '{operator}', received {type(value)}")
    root, dot, path = field.partition(".")
    if dot and root != "meta":  # such a field is missing in every document
        return EVERYTHING if document_matches_filter(dict(condition), Document(id="-")) else NOTHING
    if not dot:
        path = field
        if field in _DOCUMENT_FIELDS and (field != "id" or operator in _BOUNDS):
            raise NotNative
    if operator in _BOUNDS:
        return _range(path, operator, value, exists, index_range)
    values = value if operator in ("in", "not in") else [value]
    matches = _is_id(values) if not dot and field == "id" else _is_any(path, values)
    return matches if operator in ("==", "in") else engine.Filter(must_not=[matches])


def _is_id(values: Sequence[Any]) -> engine.Filter:
    return engine.Filter(must=[engine.HasIdCondition({point_id(value) for value in values if isinstance(value, str)})])


def _is_any(path: str, values: Sequence[Any]) -> engine.Filter:
    facts = [_fact(path, text) for value in values if value is not None for text in _queried_texts(value)]
    either: list[Any] = [_any_fact(facts)] if facts else []
    if any(value is None for value in values):
        either.append(engine.Filter(must_not=[_of_kind(path, NUMBER, DATE, OTHER)]))
    return engine.Filter(should=either) if either else NOTHING


def _range(
    path: str,
    operator: str,
    value: Any,
    exists: Callable[[engine.Filter], bool],
    index_range: Callable[[str], None],
) -> engine.Filter:
    if value is None:
        return NOTHING
    if isinstance(value, int | float):
        others, bounds = (DATE, OTHER), {NUMBER: _float(value)}
    elif date := _strict_date(value):
        others, bounds = (NUMBER, OTHER), _microseconds(date)
        wall = bounds.pop(WALL, None)
        # A date without time zone takes that of the other one, so then the wall clocks are compared.
        bounds |= {NAIVE: wall} if wall is not None else {WALL: bounds[NAIVE]}
    else:
        others, bounds = (NUMBER, DATE, OTHER), {}
    if exists(engine.Filter(must=[_of_kind(path, *others)])):
        raise NotNative
    ranges: list[Any] = []
    for name, bound in bounds.items():
        key = f"{name}.{_key(path)}"
        index_range(key)
        ranges.append(engine.FieldCondition(key, range=engine.RangeFloat(**{_BOUNDS[operator]: bound})))
    return engine.Filter(should=ranges) if ranges else NOTHING


def _of_kind(path: str, *kinds: str) -> engine.FieldCondition:
    return _any_fact([_fact(path, kind) for kind in kinds])


def _any_fact(facts: Sequence[str]) -> engine.FieldCondition:
    return engine.FieldCondition(FACTS, match=engine.MatchTextAny(" ".join(facts)))


def _fields(meta: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values that a filter can name, nested ones under their dotted path."""
    for key, value in meta.items():
        if value is None or "." in key:  # no filter can name a key with a dot
            continue
        yield prefix + key, value
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{key}.")


def _fact(path: str, text: str) -> str:
    return blake2b(f"{path}\0{text}".encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


def _key(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"-{ord(match[0]):x}-", path)


def _texts(value: Any) -> list[str]:
    """Write a value so that equal values give equal texts; a date also as its instant and its wall clock."""
    texts = [json.dumps(_canonical(value), sort_keys=True)]
    if date := _iso_date(value):
        texts += [f"{name} {number}" for name, number in _microseconds(date).items()]
    return texts


def _queried_texts(value: Any) -> list[str]:
    """Write a filter's value as the texts of which an equal value of a document has at least one."""
    if value != value:  # NaN  # noqa: PLR0124
        return []
    date = value if isinstance(value, datetime) else _iso_date(value)
    texts = [] if isinstance(value, datetime) else [json.dumps(_canonical(value), sort_keys=True, default=str)]
    if date:
        written = _microseconds(date)
        if INSTANT in written:
            texts += [f"{INSTANT} {written[INSTANT]}", f"{NAIVE} {written[WALL]}"]
        else:
            texts += [f"{name} {written[NAIVE]}" for name in (NAIVE, WALL)]
    return texts


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return [_canonical(element) for element in value]
    if isinstance(value, dict):
        return {key: _canonical(element) for key, element in value.items()}
    return value


def _iso_date(value: Any) -> datetime | None:
    if not isinstance(value, str) or not _ISO_DATE.match(value):
        return None
    try:
        return _strict_date(value) or dateutil.parser.isoparse(value)
    except (ValueError, OverflowError):
        return None


def _strict_date(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value)
    except (ValueError, TypeError):
        return None


def _microseconds(date: datetime) -> dict[str, int]:
    wall = _count(date.replace(tzinfo=None), _EPOCH)
    if date.tzinfo is None:
        return {NAIVE: wall}
    return {INSTANT: _count(date, _EPOCH.replace(tzinfo=UTC)), WALL: wall}


def _count(date: datetime, epoch: datetime) -> int:
    passed = date - epoch
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf
