"""Keeping the best sentences of several texts under one budget."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from haystack_adv_retrieval.compression.texts import Text, joint
from haystack_adv_retrieval.context.budgets import LengthUnit, length_of
from haystack_adv_retrieval.core.selection import Candidate, select


def keep_best(
    texts: Sequence[Text],
    *,
    length_unit: LengthUnit,
    separator: str,
    keep_antecedents: bool,
    keep_each: bool,
    method: str,
    threshold: float | None,
    **limits: Any,
) -> None:
    """
    Keep the best units of texts; a text of which nothing is kept stays without a result.

    :param texts: The texts, with relevance and scores.
    :param length_unit: Unit of lengths.
    :param separator: Put where something was left out.
    :param keep_antecedents: Whether units bring along what they need.
    :param keep_each: Whether the best unit of each text is kept, whatever its relevance, as far as the budget allows.
    :param method: What the results say how they were made.
    :param threshold: The lowest relevance of a unit that is kept on its own account; None for any.
    :param limits: As for `select`.
    """
    candidates: list[Candidate] = []
    starts: list[int] = []
    for number, text in enumerate(texts):
        starts.append(len(candidates))
        candidates += _candidates(number, text, length_unit, threshold, starts[-1] if keep_antecedents else None)
    chosen = select(
        candidates,
        separator_length=max(length_of(joint(gap, separator), length_unit) for gap in ("", "\f")),
        first=[start + int(text.scores.argmax()) for start, text in zip(starts, texts, strict=True)]
        if keep_each
        else [],
        **limits,
    )
    if chosen.cut is not None:
        number = candidates[chosen.cut].text
        texts[number].cut(chosen.cut - starts[number], chosen.length, length_unit)
    for number, (text, start) in enumerate(zip(texts, starts, strict=True)):
        if kept := [index - start for index in chosen.indices if candidates[index].text == number]:
            text.keep(kept, separator, method, length_unit)


def _candidates(
    number: int, text: Text, length_unit: LengthUnit, threshold: float | None, first: int | None
) -> Iterator[Candidate]:
    end = text.units[0].span.start
    passing = text.relevance >= (-np.inf if threshold is None else threshold)
    for unit, score, passes, sentence in zip(text.units, text.scores, passing, text.sentences, strict=True):
        gap = unit.span.start - end if length_unit == "character" else 0
        needs = () if first is None else tuple(first + need for need in unit.needs)
        yield Candidate(number, float(score), length_of(sentence, length_unit), gap, needs, bool(passes))
        end = unit.span.end
