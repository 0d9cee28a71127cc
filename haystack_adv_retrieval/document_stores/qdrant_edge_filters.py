"""
Haystack's filters as filters of the engine, with Haystack's meaning.

The engine's own conditions on metadata mean something else: any element of a list matches, `1` is not `1.0`, dates
without a time zone are in UTC. So each document is written with *facts*: a hash of every field and its value, made so
that values which Haystack holds for equal have a hash in common. The facts are one text, and its index answers every
`==`, `!=`, `in` and `not in` on every field. Ranges read numbers and dates that are stored apart. What is left has no
exact form in the engine, above all ranges over fields that hold text or different kinds of values: `translate` then
raises `NotNativeError`, and the caller looks at the documents that `narrow` leaves.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from math import inf, isnan
from typing import Any

import qdrant_edge as engine
from dateutil.parser import isoparse
from haystack import Document
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter

from haystack_adv_retrieval.document_stores.qdrant_edge_shards import FACTS, SharedShard

EVERYTHING = engine.Filter()
NOTHING = engine.Filter(must=[engine.HasIdCondition(set())])

# Kinds of values. Those that ranges compare are also payload keys: numbers, and dates in microseconds. A date without
# time zone takes that of the date it is compared with, so then the clocks on the wall are compared. None is of no kind.
NUMBER = "number"
NAIVE = "naive"  # the wall clock of a date without time zone
INSTANT, WALL = "instant", "wall"  # of a date with one
OTHER = "other"
DATES = {NAIVE, INSTANT, WALL}
KINDS = {NUMBER, *DATES, OTHER}

BOUNDS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
OPERATORS = ("==", "!=", "in", "not in", *BOUNDS)

_DOCUMENT_FIELDS = frozenset(field.name for field in fields(Document))
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:\Z|[Tt ])")
_EPOCH = datetime(1970, 1, 1)
_EXACT = 2**53  # smaller integers are exact as floats


class NotNativeError(Exception):
    """The engine cannot express a filter exactly."""


def point_id(document_id: str) -> str:
    """
    Compute the id of a document's point.

    :param document_id: Id of the document.
    :returns: 32 hexadecimal digits.
    """
    return blake2b(document_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def filterable(meta: Mapping[str, Any]) -> dict[str, Any]:
    """
    Compute what filters read of a document.

    :param meta: Its metadata, JSON values only.
    :returns: The facts, and numbers and dates by field, as payload.
    """
    payload: dict[str, Any] = {}
    facts = []
    for path, value in _fields(meta):
        ranged: dict[str, float] = {}
        date = _iso_date(value)
        if isinstance(value, int | float):
            ranged = {NUMBER: int(value) if isinstance(value, int) else value} if abs(value) < _EXACT else {}
        elif date and _parse(value):
            ranged = _microseconds(date)
        for kind, number in ranged.items():
            payload.setdefault(kind, {})[_key(path)] = number
        facts += [_kind_fact(path, kind) for kind in ranged or [OTHER]]
        facts += [_fact(path, text) for text in _texts(value, date)]
    return payload | {FACTS: " ".join(facts)}


def check_filter(filters: Any) -> None:
    """
    Refuse a malformed filter, wherever in it the fault is.

    :param filters: What is to be a Haystack filter.
    :raises FilterError: If it is none.
    """
    if not isinstance(filters, Mapping):
        raise FilterError(f"A filter must be a dictionary, got {filters!r}")
    if "field" in filters:
        _require(filters, "operator", "value")
        field, operator, value = filters["field"], filters["operator"], filters["value"]
        if not isinstance(field, str):
            raise FilterError(f"'field' must be a string, got {field!r}")
        if operator not in OPERATORS:
            raise FilterError(f"Unknown comparison operator '{operator}'. Valid operators are: {', '.join(OPERATORS)}")
        if operator in ("in", "not in") and not isinstance(value, list):
            raise FilterError(f"Filter value must be a `list` when using operator '{operator}', got {type(value)}")
        return
    _require(filters, "operator", "conditions")
    operator, conditions = filters["operator"], filters["conditions"]
    if operator not in ("AND", "OR", "NOT"):
        raise FilterError(f"Unknown logical operator '{operator}'. Valid operators are: AND, NOT, OR")
    if not isinstance(conditions, list | tuple):
        raise FilterError(f"'conditions' must be a list, got {conditions!r}")
    for condition in conditions:
        check_filter(condition)


def names_field(filters: Mapping[str, Any], field: str) -> bool:
    """
    Tell whether a filter has a condition on a field.

    :param filters: A Haystack filter that was checked.
    :param field: The field.
    :returns: Whether it has.
    """
    if "field" in filters:
        return bool(filters["field"] == field)
    return any(names_field(condition, field) for condition in filters["conditions"])


def translate(filters: Mapping[str, Any], shard: SharedShard) -> engine.Filter:
    """
    Translate a filter.

    :param filters: A Haystack filter that was checked.
    :param shard: The shard that will be asked.
    :returns: A filter of the engine that matches the same documents.
    :raises NotNativeError: If the engine cannot express it exactly.
    """
    if "field" in filters:
        return _comparison(filters, shard)
    parts: list[Any] = [translate(condition, shard) for condition in filters["conditions"]]
    if filters["operator"] == "OR":
        return engine.Filter(should=parts) if parts else NOTHING
    together = engine.Filter(must=parts)
    return together if filters["operator"] == "AND" else engine.Filter(must_not=[together])


def narrow(filters: Mapping[str, Any], shard: SharedShard) -> engine.Filter:
    """
    Translate the first conditions of a filter that cannot be translated whole.

    Haystack evaluates an AND from the left, so a later condition that cannot compare two values raises only for
    documents that pass the ones before.

    :param filters: A Haystack filter that was checked.
    :param shard: The shard that will be asked.
    :returns: A filter that matches at least the documents that have to be looked at.
    """
    parts: list[Any] = []
    try:
        for condition in filters["conditions"] if filters["operator"] == "AND" else ():
            parts.append(translate(condition, shard))
    except NotNativeError:
        pass
    return engine.Filter(must=parts)


def _comparison(condition: Mapping[str, Any], shard: SharedShard) -> engine.Filter:
    field, operator, value = condition["field"], condition["operator"], condition["value"]
    root, dot, below = field.partition(".")
    path = below if dot else field
    if dot and root != "meta":  # a field that no document has
        return EVERYTHING if document_matches_filter(dict(condition), Document(id="-")) else NOTHING
    if not dot and field in _DOCUMENT_FIELDS and (field != "id" or operator in BOUNDS):
        raise NotNativeError
    if operator in BOUNDS:
        return _range(path, operator, value, shard)
    values = value if operator in ("in", "not in") else [value]
    matches = _any_id(values) if field == "id" else _any_value(path, values)
    return matches if operator in ("==", "in") else engine.Filter(must_not=[matches])


def _any_id(values: Sequence[Any]) -> engine.Filter:
    return engine.Filter(must=[engine.HasIdCondition({point_id(value) for value in values if isinstance(value, str)})])


def _any_value(path: str, values: Sequence[Any]) -> engine.Filter:
    facts = [_fact(path, text) for value in values if value is not None for text in _equal_texts(value)]
    either = [_any_fact(facts)] if facts else []
    if any(value is None for value in values):
        either.append(engine.Filter(must_not=[_of_kind(path, KINDS)]))
    return engine.Filter(should=[*either]) if either else NOTHING


def _range(path: str, operator: str, value: Any, shard: SharedShard) -> engine.Filter:
    if value is None:
        return NOTHING
    bounds: dict[str, float] = {}
    comparable: set[str] = set()
    if isinstance(value, int | float):
        bounds = {} if isnan(value) else {NUMBER: _float(value)}
        comparable = {NUMBER}
    elif date := _parse(value):
        bounds = _counterparts(date)
        comparable = DATES
    if shard.any(_of_kind(path, KINDS - comparable)):
        raise NotNativeError
    ranges: list[Any] = []
    for kind, bound in bounds.items():
        if shard.any(_of_kind(path, {kind})):
            key = f"{kind}.{_key(path)}"
            shard.index_range(key)
            ranges.append(engine.FieldCondition(key, range=engine.RangeFloat(**{BOUNDS[operator]: bound})))
    return engine.Filter(should=ranges) if ranges else NOTHING


def _of_kind(path: str, kinds: Set[str]) -> engine.Filter:
    return _any_fact([_kind_fact(path, kind) for kind in kinds])


def _any_fact(facts: Sequence[str]) -> engine.Filter:
    return engine.Filter(must=[engine.FieldCondition(FACTS, match=engine.MatchTextAny(" ".join(facts)))])


def _fields(meta: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that a filter can name, nested ones by their path."""
    for key, value in meta.items():
        if value is not None and "." not in key:  # no filter can name a key with a dot
            yield prefix + key, value
            if isinstance(value, dict):
                yield from _fields(value, f"{prefix}{key}.")


def _fact(path: str, text: str) -> str:
    return blake2b(f"{path}\0{text}".encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


@lru_cache(maxsize=1000)
def _kind_fact(path: str, kind: str) -> str:
    return _fact(path, kind)


@lru_cache(maxsize=1000)
def _key(path: str) -> str:
    """Spell a path so that the engine takes it for one key."""
    return "_" + re.sub(r"[^A-Za-z0-9_]", lambda match: f"-{ord(match[0]):x}-", path)


def _texts(value: Any, date: datetime | None) -> list[str]:
    """Write a document's value such that equal values have a text in common; NaN equals nothing."""
    dates = [f"{kind} {number}" for kind, number in _microseconds(date).items()] if date else []
    try:
        return [_text(value), *dates]
    except NotNativeError:
        return dates


def _equal_texts(value: Any) -> list[str]:
    """Write a filter's value as the texts of which an equal value of a document has at least one."""
    if isinstance(value, float) and isnan(value):
        return []
    date = value if isinstance(value, datetime) else _iso_date(value)
    dates = [f"{kind} {number}" for kind, number in _counterparts(date).items()] if date else []
    return dates if isinstance(value, datetime) else [_text(value), *dates]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return "=" + value
    return str(int(value)) if isinstance(value, int) else json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _canonical(element) for key, element in value.items()}
    if isinstance(value, list):
        return [_canonical(element) for element in value]
    if isinstance(value, int | float) and not isnan(value):
        return int(value) if isinstance(value, int) or value.is_integer() else value
    if value is None or isinstance(value, str):
        return value
    raise NotNativeError


def _iso_date(value: Any) -> datetime | None:
    """Read what Haystack takes for a date in `==`."""
    if not isinstance(value, str) or not _ISO_DATE.match(value):
        return None
    try:
        return _parse(value) or isoparse(value)
    except (ValueError, OverflowError):
        return None


def _parse(value: Any) -> datetime | None:
    """Read what Haystack takes for a date in ranges, as far as it does not have to guess the format."""
    try:
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def _microseconds(date: datetime) -> dict[str, float]:
    wall = _since(date.replace(tzinfo=None), _EPOCH)
    if date.tzinfo is None:
        return {NAIVE: wall}
    return {INSTANT: _since(date, _EPOCH.replace(tzinfo=UTC)), WALL: wall}


def _counterparts(date: datetime) -> dict[str, float]:
    """Tell what of a document's date a filter's date is compared with, and as which number."""
    clocks = _microseconds(date)
    if NAIVE in clocks:
        return {NAIVE: clocks[NAIVE], WALL: clocks[NAIVE]}
    return {NAIVE: clocks[WALL], INSTANT: clocks[INSTANT]}


def _since(date: datetime, epoch: datetime) -> int:
    passed = date - epoch
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def _require(filters: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if key not in filters:
            raise FilterError(f"'{key}' key missing in {filters}")
