"""Keeping the best sentences of several documents under one budget."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from haystack_adv_retrieval.compression.texts import Text, joint
from haystack_adv_retrieval.context.budgets import LengthUnit, length_of
from haystack_adv_retrieval.core.selection import Candidate, select, smooth


def ranked(text: Text, scores: np.ndarray, neighbor_weight: float, text_weight: float) -> np.ndarray:
    """
    Smooth similarities; headings and headers, which answer nothing, come last.

    :param text: The text.
    :param scores: One similarity per unit.
    :param neighbor_weight: As for `smooth`.
    :param text_weight: As for `smooth`.
    :returns: One score per unit.
    """
    labels = np.array([unit.is_label for unit in text.units])
    smoothed = smooth(scores, neighbor_weight, text_weight)
    return smoothed if labels.all() else np.where(labels, -np.inf, smoothed)


def keep_best(
    texts: Sequence[Text],
    scores: Sequence[np.ndarray],
    *,
    length_unit: LengthUnit,
    separator: str,
    keep_antecedents: bool,
    keep_each: bool,
    method: str,
    **limits: Any,
) -> None:
    """
    Keep the best units of texts; a text of which nothing is kept stays without a result.

    :param texts: The texts.
    :param scores: For each text one score per unit.
    :param length_unit: Unit of lengths.
    :param separator: Put where something was left out.
    :param keep_antecedents: Whether units bring along what they need.
    :param keep_each: Whether the best unit of each text is kept, whatever its score, as far as the budget allows.
    :param method: What the results say how they were made.
    :param limits: As for `select`.
    """
    candidates: list[Candidate] = []
    starts: list[int] = []
    for number, (text, own) in enumerate(zip(texts, scores, strict=True)):
        starts.append(len(candidates))
        candidates += _candidates(number, text, own, length_unit, starts[-1] if keep_antecedents else None)
    chosen = select(
        candidates,
        separator_length=max(length_of(joint(gap, separator), length_unit) for gap in ("", "\f")),
        first=[start + int(np.argmax(own)) for start, own in zip(starts, scores, strict=True)] if keep_each else [],
        **limits,
    )
    for number, (text, start) in enumerate(zip(texts, starts, strict=True)):
        if kept := [index - start for index in chosen if candidates[index].text == number]:
            text.keep(kept, separator, method)


def _candidates(
    number: int, text: Text, scores: np.ndarray, length_unit: LengthUnit, first: int | None
) -> Iterator[Candidate]:
    end = text.units[0].span.start
    for unit, score, sentence in zip(text.units, scores, text.sentences, strict=True):
        gap = unit.span.start - end if length_unit == "character" else 0
        needs = () if first is None else tuple(first + need for need in unit.needs)
        yield Candidate(number, float(score), length_of(sentence, length_unit), gap, needs)
        end = unit.span.end
