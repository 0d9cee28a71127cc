"""
Reading numbered labels out of a model's reply: a ranking of passages, or a choice of sentences.

Labels are the numbers 1 to n. They are read where a reply states an order, in JSON or in lines, and nowhere else: a
number in prose, a score or a refusal is no label. What can be read in two ways is not read at all, since asking again
is cheap and nobody would notice a silent misreading.
"""

import re

from haystack_adv_retrieval.core.replies.answers import answer_of
from haystack_adv_retrieval.core.replies.label_json import labels_in_json
from haystack_adv_retrieval.core.replies.label_lines import NOUN, labels_in_lines

_NOTHING = re.compile(rf"\W*(?:none|nothing|n/?a|0|no (?:relevant )?{NOUN}|\[\s*\])\W*", re.IGNORECASE)
_RANGE = re.compile(r"(?<![\d.-])(\d{1,4})\s*[-–]\s*(\d{1,4})(?![\d.-])")


def read_labels(text: str, count: int, *, allow_none: bool = False, ranges: bool = False) -> tuple[list[int], bool]:
    """
    Read the labels that a reply names, in its order.

    :param text: The reply.
    :param count: How many labels there are: 1 to `count`.
    :param allow_none: Whether a reply may name none, by an empty list or a word such as "none".
    :param ranges: Whether "3-5" means 3, 4, 5.
    :returns: The labels, each once, and whether something had to be mended or ignored.
    :raises ValueError: If the reply states no order of labels, or one that can be read in two ways.
    """
    answer = answer_of(text)
    if ranges:
        answer = _RANGE.sub(lambda match: _spelled_out(match, count), answer)
    if allow_none and _NOTHING.fullmatch(answer):
        return [], False
    try:
        named, mended = labels_in_json(answer)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if named is None:
        named = labels_in_lines(answer)
    if not named and (named is None or not allow_none):
        raise ValueError("it names no label")
    labels = _real(named, count)
    return labels, mended or labels != named


def _spelled_out(match: re.Match[str], count: int) -> str:
    first, last = int(match[1]), int(match[2])
    return ", ".join(map(str, range(first, last + 1))) if 0 < first < last <= count else match[0]


def _real(named: list[int], count: int) -> list[int]:
    """Keep the first mention of each label that there is."""
    if 0 in named and max(named) < count:  # counted from 0: clear if it is all of them, else a guess
        if sorted(named) != list(range(count)):
            raise ValueError("it counts from 0")
        return [label + 1 for label in named]
    real = [label for label in named if 1 <= label <= count]
    if 2 * len(real) < len(named):
        raise ValueError(f"it names more numbers that are no labels than labels, which go from 1 to {count}")
    return list(dict.fromkeys(real))
