"""Which leaves should not be read without which others."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal

from haystack_adv_retrieval.core.sentences import paragraph_spans
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.core.units import find_units

Respect = Literal["leaf", "paragraph", "table"]


def leaf_needs(texts: Sequence[str], runs: Sequence[range], respect: Respect, language: str = "en") -> list[list[int]]:
    """
    Find for each leaf which others come along with it.

    :param texts: Texts of the leaves.
    :param runs: Which of them follow one another; only leaves of one run can need each other.
    :param respect: `"leaf"`: none. `"paragraph"`: the rest of its paragraph. `"table"`: what it cannot be understood
        without, that is the header of its table, the lead-in of its list, its heading, the sentence that it leans on.
    :param language: ISO 639 code of the texts' language; sentences that lean on others are known in English alone.
    :returns: Indices for each leaf, ascending; nothing for `"leaf"`.
    """
    if respect == "leaf":
        return []
    needs: list[set[int]] = [set() for _ in texts]
    for run in runs:
        pieces = [texts[index] for index in run]
        text, starts = "".join(pieces), [0, *accumulate(map(len, pieces[:-1]))]
        pairs = _in_paragraphs(text) if respect == "paragraph" else _in_units(text, language)
        for dependent, needed in pairs:
            for index in _leaves_of(dependent, starts, run):
                needs[index].update(_leaves_of(needed, starts, run))
    return [sorted(each - {index}) for index, each in enumerate(needs)]


def _in_paragraphs(text: str) -> Iterator[tuple[Span, Span]]:
    return ((paragraph, paragraph) for paragraph in paragraph_spans(text))


def _in_units(text: str, language: str) -> Iterator[tuple[Span, Span]]:
    units = find_units(text, language)
    return ((unit.span, units[needed].span) for unit in units for needed in unit.needs)


def _leaves_of(span: Span, starts: Sequence[int], run: range) -> range:
    """Find the leaves that a span of a run's text lies in."""
    return run[max(0, bisect_right(starts, span.start) - 1) : bisect_left(starts, span.end)]
