"""Filters as trees: read from what a model replied, written as Haystack filters, relaxed step by step."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_DEPTH = 6

# Other spellings of the keys of a condition and of the logical operators.
_KEYS = {
    "field": ("field", "attribute", "key", "name", "column"),
    "operator": ("operator", "op", "comparator"),
    "value": ("value", "values"),
    "conditions": ("conditions", "filters", "arguments", "args", "clauses", "operands"),
}
_LOGICAL: dict[str, Literal["AND", "OR", "NOT"]] = {"and": "AND", "all": "AND", "or": "OR", "not": "NOT", "nor": "NOT"}


_SCALAR = str | int | float  # what a value may be


@dataclass(frozen=True)
class Clause:
    """
    One condition.

    :param field: Name of the field.
    :param operator: The comparison.
    :param value: What to compare with.
    :param certainty: How sure it is that this was asked, in (0, 1].
    :param words: The words of the question that are said to ask it.
    """

    field: Any
    operator: Any
    value: Any
    certainty: float = 1.0
    words: str = field(default="", compare=False)


@dataclass(frozen=True)
class Group:
    """
    Several conditions.

    :param operator: AND, OR, or NOT: none of them holds.
    :param parts: The conditions.
    """

    operator: Literal["AND", "OR", "NOT"]
    parts: tuple["Expression", ...]


@dataclass(frozen=True)
class Unreadable:
    """A part of a filter that has no known form, and why."""

    said: Any
    reason: str


Expression = Clause | Group | Unreadable


def read_filter(data: Any, depth: int = 0) -> Expression:
    """
    Read a filter out of parsed JSON.

    Conditions are `{"field", "operator", "value"}`, groups `{"operator", "conditions"}`, a list is an AND, and NOT
    means that none of its conditions holds. Also read are `{"OR": [...]}`, `{"year": {"gte": 2020}}` and
    `{"year": 2020}`.

    :param data: Anything.
    :param depth: How deep in the filter the data stands.
    :returns: The tree, with `Unreadable` where the data has no known form.
    """
    if depth > MAX_DEPTH:
        return Unreadable("...", f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(data, list) or data is None:
        return _group("AND", data or [], depth)
    if isinstance(data, dict):
        said = {name: next((data[key] for key in keys if key in data), None) for name, keys in _KEYS.items()}
        logical = _logical(said["operator"])
        if said["conditions"] is not None and (logical or said["operator"] is None):
            return _group(logical or "AND", said["conditions"], depth)
        if said["field"] is not None:
            words = data.get("words")
            return Clause(
                said["field"], said["operator"] or "==", said["value"], words=words if isinstance(words, str) else ""
            )
        if said["operator"] is None:
            return Group("AND", tuple(_item(str(key), value, depth) for key, value in data.items()))
    return Unreadable(data, "it is no condition")


def _logical(name: Any) -> Literal["AND", "OR", "NOT"] | None:
    return _LOGICAL.get(name.casefold().lstrip("$")) if isinstance(name, str) else None


def _group(logical: Literal["AND", "OR", "NOT"], conditions: Any, depth: int) -> Group:
    parts = conditions if isinstance(conditions, list) else [conditions]
    return Group(logical, tuple(read_filter(part, depth + 1) for part in parts))


def _item(key: str, value: Any, depth: int) -> Group:
    """Read one item of a condition in the style of MongoDB."""
    if logical := _logical(key):
        return _group(logical, value, depth)
    comparisons = value.items() if isinstance(value, dict) else [("==", value)]
    return Group("AND", tuple(Clause(key, operator, operand) for operator, operand in comparisons))


def joined(operator: Literal["AND", "OR"], parts: Iterable[Expression]) -> Expression | None:
    """
    Put conditions together, each once.

    :param operator: How.
    :param parts: The conditions.
    :returns: A group, the only condition, or None if there is none.
    """
    distinct: list[Expression] = []
    for part in parts:
        distinct += [part] if part not in distinct else []
    return Group(operator, tuple(distinct)) if len(distinct) > 1 else distinct[0] if distinct else None


def clauses_of(tree: Expression | None) -> Iterator[Clause]:
    """List all conditions of a tree."""
    if isinstance(tree, Clause):
        yield tree
    elif isinstance(tree, Group):
        for part in tree.parts:
            yield from clauses_of(part)


def with_clauses(tree: Expression, change: Callable[[Clause], Expression]) -> Expression:
    """Replace every condition of a tree by what a function makes of it."""
    if isinstance(tree, Clause):
        return change(tree)
    if isinstance(tree, Group):
        return Group(tree.operator, tuple(with_clauses(part, change) for part in tree.parts))
    return tree


def emit(tree: Expression | None) -> dict[str, Any]:
    """
    Write a repaired tree as a Haystack filter.

    :param tree: What `repair` returned.
    :returns: The filter, empty if there is none.
    """
    if isinstance(tree, Clause):
        value = list(tree.value) if isinstance(tree.value, list) else tree.value
        return {"field": f"meta.{tree.field}", "operator": tree.operator, "value": value}
    if not isinstance(tree, Group):
        return {}
    conditions: list[dict[str, Any]] = []
    for condition in map(emit, tree.parts):
        conditions += condition["conditions"] if condition["operator"] == tree.operator else [condition]
    return {"operator": tree.operator, "conditions": conditions}


def parts_by_field(tree: Expression | None) -> list[tuple[float, Expression]]:
    """
    Cut a tree into what can be given up by itself: the conditions of an AND, those on one field together.

    :param tree: What `repair` returned.
    :returns: Certainty and conditions, in the tree's order.
    """
    groups: dict[Any, list[Expression]] = defaultdict(list)
    for part in tree.parts if isinstance(tree, Group) and tree.operator == "AND" else [tree] if tree else []:
        fields = frozenset(clause.field for clause in clauses_of(part))
        groups[fields if len(fields) == 1 else part].append(part)
    whole = [joined("AND", parts) for parts in groups.values()]
    return [(min(clause.certainty for clause in clauses_of(part)), part) for part in whole if part]


def relaxations(tree: Expression | None) -> list[Expression | None]:
    """
    Loosen a tree step by step, the conditions on the least certain field first.

    :param tree: What `repair` returned.
    :returns: Ever looser trees, the last of which is None (asks for nothing); empty if the tree already is None.
    """
    parts = parts_by_field(tree)
    ladder = []
    while parts:
        parts.remove(min(reversed(parts), key=lambda part: part[0]))
        ladder.append(joined("AND", [part for _, part in parts]))
    return ladder


def plain(part: Any) -> Any:
    """
    Write a part of a filter for a report: JSON-ready, and of bounded depth and length whatever a model said.

    :param part: A tree, or data as it was said.
    :returns: Plain data.
    """
    if isinstance(part, Clause):
        return {"field": plain(part.field), "operator": plain(part.operator), "value": plain(part.value)}
    if isinstance(part, Group):
        return {"operator": part.operator, "conditions": [plain(inner) for inner in part.parts]}
    if isinstance(part, Unreadable):
        return plain(part.said)
    if isinstance(part, list | tuple):
        return [plain(item) if isinstance(item, _SCALAR) else "..." for item in part[:20]]
    if isinstance(part, float) and not math.isfinite(part):
        return str(part)
    return part[:200] if isinstance(part, str) else part if isinstance(part, _SCALAR) or part is None else "..."
