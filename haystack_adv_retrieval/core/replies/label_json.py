"""Orders of labels in the JSON of a reply: {"ranking": [2, 1]}, [{"index": 2, "score": 0.9}], {"2": 0.9, "1": 0.4}."""

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from haystack_adv_retrieval.core.replies.answers import json_values
from haystack_adv_retrieval.core.replies.label_lines import (
    DENIED,
    NOUN,
    NUMBER,
    Entry,
    joined,
    labels_in_lines,
    ordered,
)

_LABEL = re.compile(
    rf"\s*(?:[\[(]?\s*(?:{NOUN}[\s_:#.-]*)?[\[(]?#?({NUMBER})\s*[\])]*|\[({NUMBER})\].+)\s*", re.IGNORECASE
)
_LABEL_KEY = re.compile(rf"(?:{NOUN}|num)(?:_?(?:id|index|no|number|label))?", re.IGNORECASE)
_SCORE_KEY = re.compile(r"score|relevance|confidence|prob|grade|rating", re.IGNORECASE)
_RANK_KEY = re.compile(r"rank(?:ing)?|position|place", re.IGNORECASE)
_ANSWER_KEY = re.compile(r"rank|order|final|answer|sorted", re.IGNORECASE)


def labels_in_json(text: str) -> tuple[list[int] | None, bool]:
    """
    Read the order of labels that the JSON in a text states.

    :param text: The text.
    :returns: The labels as they are named (none for an empty list), or None if no JSON states an order; and whether the
        JSON had to be mended.
    """
    # A list of one, "[3]", is a marked label and left to the reading of lines.
    found = [
        value
        for value in json_values(text)
        if _holds_objects(value.value) or (len(value.value) != 1 and _stands_alone(text, value.start, value.end))
    ]
    entries = [entry for value in found if (entry := _entry(value.value))]
    if entries and len(entries) == len(found):  # one a line
        return ordered(entries), any(value.repaired for value in found)
    read = [(order, value.repaired) for value in found if (order := _order(value.value)) is not None]
    return (joined(order for order, _ in read) if read else None), any(repaired for _, repaired in read)


def _holds_objects(value: Any) -> bool:
    return isinstance(value, dict) or any(isinstance(item, dict) for item in value)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Tell whether nothing else is on the lines of a list, save an introduction that ends with a colon."""
    before, after = text[:start].rstrip("*` "), text[end:].partition("\n")[0].strip("*` .,;")
    introduction = before.rstrip("`\n").rpartition("\n")[2]
    if introduction.endswith((":", "=")):
        return not after and not DENIED.search(introduction)
    return not after and (not before or before.endswith("\n"))


def _order(value: Any) -> list[int] | None:
    if isinstance(value, str):
        return labels_in_lines(value)
    if isinstance(value, dict):
        return _order_of_object(value)
    if not isinstance(value, list):
        return None
    if value and all(isinstance(item, list) for item in value):
        return _order_of_lists(value)
    entries = [entry for item in value if (entry := _entry(item))]
    return ordered(entries) if entries or not value else None


def _order_of_object(value: Mapping[str, Any]) -> list[int] | None:
    scored = [Entry(label, part) for key, part in value.items() if (label := _label(key)) and _is_number(part)]
    if scored and len(scored) == len(value):
        # {"3": 0.9, "1": 0.2} holds scores; {"3": 1, "1": 2} could hold ranks of labels or labels at ranks.
        return ordered(scored) if any(part % 1 for part in value.values()) else None
    if entry := _entry(value):
        return [entry.label]
    orders = {
        key: order
        for key, part in value.items()
        if not DENIED.search(key.replace("_", " ")) and not _SCORE_KEY.fullmatch(key.rstrip("s"))
        if (order := _order(part)) is not None
    }
    if len(joined(orders.values())) < sum(map(len, orders.values())):  # they contradict each other
        orders = {key: order for key, order in orders.items() if _ANSWER_KEY.search(key)}
        if len(orders) > 1:
            return None
    return joined(orders.values()) if orders else None


def _order_of_lists(items: list[list[Any]]) -> list[int] | None:
    """Read [[3, 0.9], [1, 0.2]] as labels with scores and [[3], [1, 2]] as tiers; [[3, 1], [1, 2]] could be either."""
    pairs = [Entry(label, item[1]) for item in items if len(item) == 2 and (label := _label(item[0]))]
    if len(pairs) == len(items) and any(_is_number(pair.score) and pair.score % 1 for pair in pairs):
        return ordered(pairs) if all(_is_number(pair.score) for pair in pairs) else None
    flat = [_label(part) for item in items for part in item]
    labels = [label for label in flat if label is not None]
    return labels if len(set(labels)) == len(flat) else None


def _entry(item: Any) -> Entry | None:
    """Read one item of a list: 3, "[3]", {"index": 3, "score": 0.9} or {"3": 0.9}."""
    if not isinstance(item, dict):
        label = _label(item)
        return None if label is None else Entry(label)
    labels = [label for key, part in item.items() if _LABEL_KEY.fullmatch(key) and (label := _label(part)) is not None]
    if labels:
        scores = [part for key, part in item.items() if _SCORE_KEY.search(key) and _is_number(part)]
        ranks = [part for key, part in item.items() if _RANK_KEY.fullmatch(key) and _is_number(part)]
        return Entry(labels[0], scores[0] if scores else None, ranks[0] if ranks else None)
    if len(item) == 1:
        [(key, score)] = item.items()
        label = _label(key)
        return Entry(label, score) if label is not None and _is_number(score) else None
    return None


def _label(value: Any) -> int | None:
    if isinstance(value, str):
        match = _LABEL.fullmatch(value)
        return int(match[1] or match[2]) if match else None
    return int(value) if _is_number(value) and value % 1 == 0 and value >= 0 else None


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
