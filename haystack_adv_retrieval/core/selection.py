"""Choosing the sentences of several texts that answer a question best, under one budget."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    A sentence that can be chosen.

    :param text: Which of the texts it belongs to.
    :param score: How well it answers the question.
    :param length: What it takes from the budget.
    :param needs: Indices of candidates that come along with it.
    """

    text: int
    score: float
    length: int
    needs: tuple[int, ...] = ()


def smooth(scores: np.ndarray, neighbor_weight: float, text_weight: float) -> np.ndarray:
    """
    Judge each sentence of a text with its surroundings.

    `(1 - n - t) * own + n * neighbours + t * text`, where the neighbours are the sentences up to two places away,
    nearer ones counting double, and the text is the mean of all. What stands among relevant sentences is more likely to
    be part of the answer, even if its own words are not those of the question.

    :param scores: Scores of the sentences of one text, in order.
    :param neighbor_weight: n, from 0 to 1.
    :param text_weight: t, from 0 to 1 - n.
    :returns: The smoothed scores.
    """
    if len(scores) < 2:
        return scores
    kernel = np.array([1.0, 2.0, 0.0, 2.0, 1.0])
    padded = np.pad(scores, 2)
    sums = np.convolve(padded, kernel, mode="valid")
    weights = np.convolve(np.pad(np.ones(len(scores)), 2), kernel, mode="valid")
    own_weight = 1 - neighbor_weight - text_weight
    smoothed: np.ndarray = own_weight * scores + neighbor_weight * sums / weights + text_weight * scores.mean()
    return smoothed


def select(
    candidates: Sequence[Candidate],
    *,
    max_length: int | None = None,
    threshold: float | None = None,
    top_k: int | None = None,
    min_sentences: int = 1,
    context_sentences: int = 0,
    first: Sequence[int] = (),
) -> list[int]:
    """
    Choose candidates, best first, as long as they fit the budget together with what they need.

    One that does not fit is passed over. If none fits, the best one is chosen all the same, alone: a budget that is
    smaller than a sentence is exceeded by that sentence.

    :param candidates: The sentences of all texts, each text's in order.
    :param max_length: The budget; None sets none.
    :param threshold: The lowest score that is chosen; None chooses any.
    :param top_k: How many are chosen at most; what they need and their context do not count.
    :param min_sentences: Of a text of which something is chosen, how many sentences at least, if the budget allows.
    :param context_sentences: How many neighbours on each side come along, as far as the budget allows.
    :param first: Indices that are chosen before all others, whatever their score.
    :returns: Indices of the chosen candidates, ascending.
    """
    chosen: dict[int, None] = {}
    left = float("inf") if max_length is None else max_length

    def take(indices: Sequence[int]) -> bool:
        nonlocal left
        added = [index for index in dict.fromkeys(indices) if index not in chosen]
        length = sum(candidates[index].length for index in added)
        if length > left:
            return False
        chosen.update(dict.fromkeys(added))
        left -= length
        return True

    ranked = sorted(range(len(candidates)), key=lambda index: -candidates[index].score)
    passing = [index for index in ranked if threshold is None or candidates[index].score >= threshold]
    own: list[int] = []
    for index in [*first, *passing]:
        if top_k is not None and len(own) >= top_k:
            break
        if index in own:
            continue
        if take([index, *_needed(candidates, index)]):
            own.append(index)
    if not own and (wanted := [*first, *passing]):
        own = wanted[:1]
        chosen[own[0]] = None
        left = 0
    for text in dict.fromkeys(candidates[index].text for index in own):
        missing = min_sentences - sum(candidates[index].text == text for index in chosen)
        others = [index for index in ranked if candidates[index].text == text and index not in chosen]
        for index in others[: max(0, missing)]:
            take([index])
    for index in own:
        for distance in range(1, context_sentences + 1):
            for neighbor in (index - distance, index + distance):
                if 0 <= neighbor < len(candidates) and candidates[neighbor].text == candidates[index].text:
                    take([neighbor])
    return sorted(chosen)


def _needed(candidates: Sequence[Candidate], index: int) -> list[int]:
    """List what a candidate needs, and what that needs in turn."""
    needed: list[int] = []
    waiting = list(candidates[index].needs)
    while waiting:
        other = waiting.pop()
        if other not in needed:
            needed.append(other)
            waiting.extend(candidates[other].needs)
    return needed
