"""Choosing the sentences of several texts that answer a question best, under one budget."""

from bisect import bisect, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from haystack_adv_retrieval.core.packing import with_needs

# The least share of a sentence that says something without the rest.
LEAST_PART = 0.2


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    A sentence that can be chosen.

    :param text: Which of the texts it belongs to.
    :param score: How well it answers the question, beside the others.
    :param length: What it takes from the budget.
    :param gap: What the white space between it and the sentence before takes, if both are chosen.
    :param needs: Indices of candidates that come along with it.
    :param is_relevant: Whether it is good enough to be chosen on its own account.
    """

    text: int
    score: float
    length: int
    gap: int = 0
    needs: tuple[int, ...] = ()
    is_relevant: bool = True


class Selection(NamedTuple):
    """
    What was chosen.

    :param indices: Indices of the chosen candidates, ascending.
    :param cut: The one of them that has to be cut, if any.
    :param length: What it has to be cut to.
    """

    indices: list[int]
    cut: int | None = None
    length: int = 0


def select(
    candidates: Sequence[Candidate],
    *,
    max_length: int | None = None,
    separator_length: int = 0,
    top_k: int | None = None,
    min_sentences: int = 1,
    context_sentences: int = 0,
    first: Sequence[int] = (),
    cut_to_fit: bool = False,
) -> Selection:
    """
    Choose relevant candidates, best first, as long as they fit the budget.

    One comes with what it needs, or alone if only that fits; one that does not fit at all is passed over, or cut. If
    none fits, the best one is chosen all the same, alone: a budget that is smaller than a sentence is exceeded by that
    sentence, unless it may be cut.

    :param candidates: The sentences of all texts, each text's in order.
    :param max_length: The budget; None sets none, and of 0 or less nothing is chosen.
    :param separator_length: What it takes to mark that something was left out.
    :param top_k: How many are chosen at most; what they need and their context do not count.
    :param min_sentences: Of a text of which something is chosen, how many sentences at least, if the budget allows.
    :param context_sentences: How many neighbours on each side come along, as far as the budget allows.
    :param first: Indices that are chosen before all others, relevant or not.
    :param cut_to_fit: Whether the first candidate that does not fit is cut to what is left, unless that is too little.
    :returns: What was chosen.
    """
    if max_length is not None and max_length <= 0:
        return Selection([])
    chosen = _Chosen(candidates, max_length, separator_length)
    ranked = sorted(range(len(candidates)), key=lambda index: -candidates[index].score)
    wanted = list(dict.fromkeys([*first, *(index for index in ranked if candidates[index].is_relevant)]))
    needs = [candidate.needs for candidate in candidates]
    lengths = [candidate.length for candidate in candidates]
    own: list[int] = []
    for index in wanted:
        if top_k is not None and len(own) >= top_k:
            break
        if (
            chosen.take(with_needs(index, needs, lengths, chosen.room, chosen.known))
            or chosen.take([index])
            or (cut_to_fit and chosen.take_part(index))
        ):
            own.append(index)
    if not own:
        best = wanted[:1]
        return Selection(best, best[0] if best and cut_to_fit else None, max_length or 0)
    for text in dict.fromkeys(candidates[index].text for index in own):
        missing = min_sentences - sum(candidates[index].text == text for index in chosen.indices)
        if missing > 0:
            others = [index for index in ranked if candidates[index].text == text and index not in chosen.known]
            for index in others[:missing]:
                chosen.take([index])
    for distance in range(1, context_sentences + 1):
        for index in own:
            for neighbor in (index - distance, index + distance):
                if 0 <= neighbor < len(candidates) and candidates[neighbor].text == candidates[index].text:
                    chosen.take([neighbor])
    return Selection(chosen.indices, chosen.cut, chosen.length)


class _Chosen:
    """What is chosen, and how much of the budget is left."""

    def __init__(self, candidates: Sequence[Candidate], max_length: int | None, separator_length: int) -> None:
        self.indices: list[int] = []  # ascending
        self.known: set[int] = set()  # the same, unordered
        self.room = self._left = float("inf") if max_length is None else max_length  # without and with joints
        self.cut: int | None = None
        self.length = 0  # of the one that is cut
        self._candidates = candidates
        self._separator_length = separator_length

    def take(self, indices: Sequence[int]) -> bool:
        """Choose all of these, or none if they do not fit."""
        added = [index for index in dict.fromkeys(indices) if index not in self.known]
        length = 0
        for index in added:
            length += self._cost(index)
            insort(self.indices, index)
        if length > self._left:
            for index in added:
                del self.indices[bisect(self.indices, index) - 1]
            return False
        self.known.update(added)
        self._left -= length
        self.room -= sum(self._candidates[index].length for index in added)
        return True

    def take_part(self, index: int) -> bool:
        """Choose as much of this one as fits, if that says something and no other was cut."""
        if self.cut is not None:
            return False
        self.cut = index
        length = self._candidates[index].length
        # Less than the whole, even if a separator is shorter than the gap that the whole would keep behind it.
        room = min(length - 1, int(self._left) - (self._cost(index) - length))
        if room < max(1, LEAST_PART * length):
            self.cut = None
            return False
        insort(self.indices, index)
        self.known.add(index)
        self.length, self.room, self._left = room, 0, 0
        return True

    def _cost(self, index: int) -> int:
        """Tell how much longer the whole gets by one more sentence."""
        place = bisect(self.indices, index)
        text = self._candidates[index].text
        before, after = (
            self.indices[other] if 0 <= other < len(self.indices) else None for other in (place - 1, place)
        )
        before, after = (
            None if other is None or self._candidates[other].text != text else other for other in (before, after)
        )
        joints = self._joint(before, index) + self._joint(index, after) - self._joint(before, after)
        return self._candidates[index].length + joints

    def _joint(self, before: int | None, after: int | None) -> int:
        if before is None or after is None:
            return 0
        touches = after == before + 1 and before != self.cut
        return self._candidates[after].gap if touches else self._separator_length
