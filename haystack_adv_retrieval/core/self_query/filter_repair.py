"""
What is valid of a filter, in terms that every store reads alike.

A wrong filter hides the answer, so whatever is not valid is given up in the direction that lets more documents through.
"""

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from haystack_adv_retrieval.core.filter_schema import NEGATED, FilterSchema, MetadataField, operator_of
from haystack_adv_retrieval.core.self_query.coercion import Exact, Interval, coerce
from haystack_adv_retrieval.core.self_query.filter_tree import (
    Clause,
    Expression,
    Group,
    Unreadable,
    clauses_of,
    joined,
    plain,
)

MAX_CLAUSES = 50  # in one filter, the values of `in` counted singly

_Logical = Literal["AND", "OR"]
_Ends = tuple[_Logical, list[tuple[str, str]]]
# What comparing with an interval [low, high] means at its ends, and with a half-open one [low, high).
_CLOSED: dict[str, _Ends] = {
    "==": ("AND", [(">=", "low"), ("<=", "high")]),
    "!=": ("OR", [("<", "low"), (">", "high")]),
    ">": ("AND", [(">", "high")]),
    ">=": ("AND", [(">=", "low")]),
    "<": ("AND", [("<", "low")]),
    "<=": ("AND", [("<=", "high")]),
}
_HALF_OPEN: dict[str, _Ends] = _CLOSED | {
    "==": ("AND", [(">=", "low"), ("<", "high")]),
    "!=": ("OR", [("<", "low"), (">=", "high")]),
    ">": ("AND", [(">=", "high")]),
    "<=": ("AND", [("<", "high")]),
}
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda value, values: value in values,
    "not in": lambda value, values: value not in values,
}


@dataclass(frozen=True)
class Note:
    """
    What became of a part of a filter.

    :param kind: "coerced" (read as a value of the field's type), "repaired" (kept in another form), "dropped" (not
        valid) or "ignored" (not asked).
    :param said: The part as it was said.
    :param reason: What was done, or why it was dropped.
    """

    kind: Literal["coerced", "repaired", "dropped", "ignored"]
    said: Any
    reason: str


def repair(
    tree: Expression, schema: FilterSchema, today: date, threshold: float = 0.85
) -> tuple[Expression | None, list[Note]]:
    """
    Keep what is valid of a filter, so that the result never asks for more than the valid part did.

    NOT is pushed down to the conditions. Then a condition that is not valid is dropped from an AND, and takes the whole
    of an OR with it. A document that lacks the field passes `!=` and `not in` with a text, a truth value or an integer;
    it passes no other condition, nor the negation of one.

    :param tree: The conditions as they were said.
    :param schema: The fields that may be used.
    :param today: The day that relative dates are relative to.
    :param threshold: Likeness in (0, 1] from which on a text counts as a misspelt value.
    :returns: A tree for `emit`, or None if nothing is left to ask; and what was done.
    """
    work = _Repair(schema, today, threshold)
    return work.sound(tree, negated=False), work.notes


@dataclass
class _Repair:
    schema: FilterSchema
    today: date
    threshold: float
    notes: list[Note] = field(default_factory=list)
    clauses: int = 0

    def sound(self, node: Expression, *, negated: bool) -> Expression | None:
        if isinstance(node, Unreadable):
            return self._drop(node, node.reason)
        if isinstance(node, Clause):
            return self._clause(node, negated)
        either = negated != (node.operator == "OR")  # De Morgan; NOT is an AND of negations
        parts = [self.sound(part, negated=negated != (node.operator == "NOT")) for part in node.parts]
        valid = [part for part in parts if part]
        if not either:
            return self._conjunction(valid)
        if len(valid) == len(parts):
            return joined("OR", valid)
        for part in valid:
            self._drop(part, "it is an alternative to what was dropped")
        return None

    def _clause(self, said: Clause, negated: bool) -> Expression | None:
        found = self.schema.find(said.field)
        name = operator_of(said.operator)
        if not found or not name:
            unknown = f"operator {plain(said.operator)!r}" if found else f"field {plain(said.field)!r}"
            return self._drop(said, f"there is no {unknown}")
        values = said.value if isinstance(said.value, list | tuple) else [said.value]
        if name == "between":
            if len(values) != 2:
                return self._drop(said, "a range has two ends")
            ends = zip((">=", "<="), values, strict=True)
            return self.sound(
                Group("AND", tuple(replace(said, operator=end, value=value) for end, value in ends)), negated=negated
            )
        if found.type == "list[str]" or found.values:  # a value that contains a text is looked up like a misspelt one
            name = {"contains": "in", "not contains": "not in"}.get(name, name)
        if found.type == "list[str]" or isinstance(said.value, list | tuple):
            name = {"==": "in", "!=": "not in"}.get(name, name)
        name = NEGATED.get(name, name) if negated else name
        self.clauses += len(values)
        try:
            if name not in found.operators:
                raise ValueError(f"{found.name!r} cannot be asked with {name!r}")
            if self.clauses > MAX_CLAUSES:
                raise ValueError(f"there are more than {MAX_CLAUSES} conditions")
            return _portable(found, name, self._values(found, said, values), said.certainty)
        except ValueError as error:
            return self._drop(said, str(error))

    def _values(self, found: MetadataField, said: Clause, values: Sequence[Any]) -> list[Exact | Interval]:
        """Coerce the values. A list can do without one that the field is known not to have: it matches nothing."""
        meant = []
        for value in values:
            one = replace(said, value=value)
            try:
                coerced = coerce(found, value, self.today, self.threshold)
            except ValueError as error:
                if len(values) == 1 or not found.values:
                    raise
                self._drop(one, str(error))
            else:
                meant.append(coerced)
                if isinstance(value, str) and coerced.shown != value:
                    self.notes.append(Note("coerced", plain(one), f"read as {coerced.shown}"))
        if not meant:
            raise ValueError("it has no value")
        return meant

    def _conjunction(self, parts: Iterable[Expression]) -> Expression | None:
        """Join by AND. Conditions on one field that exclude each other are read as alternatives."""
        by_field: dict[Any, list[Expression]] = defaultdict(list)
        for part in parts:
            for one in _units(part):
                by_field[_only_field(one)].append(one)
        kept: list[Expression] = []
        for name, same in by_field.items():
            found = self.schema.find(name)
            if not found or found.type == "list[str]" or _satisfiable([c for part in same for c in clauses_of(part)]):
                kept += same
            elif either := joined("OR", same):
                kept.append(either)
                self.notes.append(
                    Note("repaired", [plain(part) for part in same], "they exclude each other: read as OR")
                )
        return joined("AND", kept)

    def _drop(self, said: Expression, reason: str) -> Expression | None:
        self.notes.append(Note("dropped", plain(said), reason))
        return None


def _portable(field: MetadataField, comparison: str, meant: Sequence[Exact | Interval], certainty: float) -> Expression:
    """Write a comparison with what all stores have: no equality of decimals or dates, no NOT, no empty `in`."""
    if any(one.partial for one in meant):
        if comparison in ("!=", "not in"):
            raise ValueError("a part of a year cannot be excluded by the year")
        comparison = {">": ">=", "<": "<="}.get(comparison, comparison)
    certainty *= min(one.certainty for one in meant)
    points = [value for one in meant if one.is_point for value in _values_of(one)]
    several = {"==": "in", "!=": "not in"}.get(comparison)
    if several and len(points) > len(meant):  # a value that the field spells in several ways
        if several not in field.operators:
            single_ones = [Clause(field.name, comparison, point, certainty) for point in dict.fromkeys(points)]
            return _group("OR" if comparison == "==" else "AND", single_ones)
        comparison = several
    if comparison in ("in", "not in"):
        if all(one.is_point for one in meant):
            return Clause(field.name, comparison, list(dict.fromkeys(points)), certainty)
        single, either = ("==", True) if comparison == "in" else ("!=", False)
        return _group("OR" if either else "AND", [_portable(field, single, [one], certainty) for one in meant])
    if len(meant) > 1:
        raise ValueError(f"{comparison!r} takes one value")
    one = meant[0]
    if isinstance(one, Exact) or (points and comparison in ("==", "!=")):
        return Clause(field.name, comparison, points[0], certainty)
    if one.is_empty and comparison in ("==", "!="):
        raise ValueError("no integer equals it")
    logical, ends = (_HALF_OPEN if one.open_end else _CLOSED)[comparison]
    return _group(logical, [Clause(field.name, end, getattr(one, bound), certainty) for end, bound in ends])


def _values_of(point: Exact | Interval) -> tuple[Any, ...]:
    return point.values if isinstance(point, Exact) else (point.low,)


def _group(logical: _Logical, parts: Iterable[Expression]) -> Expression:
    return joined(logical, parts) or Group("AND", ())


def _units(part: Expression) -> tuple[Expression, ...]:
    """Take an AND apart, but not the two ends of a range."""
    if isinstance(part, Group) and part.operator == "AND" and _only_field(part) is None:
        return part.parts
    return (part,)


def _only_field(part: Expression) -> Any:
    fields = {clause.field for clause in clauses_of(part)}
    alternatives = isinstance(part, Group) and part.operator == "OR"
    return fields.pop() if len(fields) == 1 and not alternatives else None


def _satisfiable(clauses: Sequence[Clause]) -> bool:
    """Tell whether one value can satisfy all these conditions on one field."""
    for clause in clauses:
        if clause.operator in ("==", "in"):
            values = clause.value if clause.operator == "in" else [clause.value]
            return any(all(_HOLDS[other.operator](value, other.value) for other in clauses) for value in values)
    lower = [clause for clause in clauses if clause.operator in (">", ">=")]
    upper = [clause for clause in clauses if clause.operator in ("<", "<=")]
    return all(
        low.value < high.value or (low.value == high.value and (low.operator, high.operator) == (">=", "<="))
        for low in lower
        for high in upper
    )
