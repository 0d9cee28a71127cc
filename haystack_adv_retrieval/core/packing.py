"""Choosing leaves under a budget."""

import heapq
from collections.abc import Sequence

import numpy as np

from haystack_adv_retrieval.core.evidence import Pool


def pack(
    pool: Pool,
    scores: np.ndarray,
    max_length: int,
    *,
    adjacency_bonus: float = 0.0,
    floor: float = 0.0,
    needs: Sequence[Sequence[int]] = (),
) -> list[int]:
    """
    Take leaves, best first, until the budget is full.

    A leaf that does not fit is passed over; from then on only what touches a taken leaf is taken, so that the rest of
    the budget does not go to crumbs. A leaf comes with what it needs, or alone if only that fits.

    :param pool: The leaves.
    :param scores: Their scores, from 0 to 1.
    :param max_length: The budget.
    :param adjacency_bonus: What a leaf gains for each neighbour that is taken.
    :param floor: Leaves below this share of the best score are taken only where others need them.
    :param needs: For each leaf the indices of those that come along with it; empty for none at all.
    :returns: Indices of the taken leaves, in the order of the pool.
    """
    taken = np.zeros(len(scores) + 2, dtype=bool)  # two more, so that there is a neighbour at both ends
    gains = np.zeros(len(scores))
    linked = np.append(pool.follows, [False, False])
    lowest = floor * scores.max(initial=0.0)
    left, is_full = max_length, False
    heap = [(-value, index) for index, value in enumerate(scores) if value >= lowest]
    heapq.heapify(heap)
    while heap:
        value, index = heapq.heappop(heap)
        if taken[index] or -value < scores[index] + gains[index]:
            continue  # an entry that a better one replaced
        touches = (linked[index] and taken[index - 1]) or (linked[index + 1] and taken[index + 1])
        added = [other for other in _with_needs(index, needs) if not taken[other]]
        if (length := pool.lengths[added].sum()) > left:
            added, length = [index], pool.lengths[index]
        if length > left:
            is_full = is_full or bool(taken.any())
        if length > left or (is_full and not touches):
            continue
        left -= length
        taken[added] = True
        for new in added:
            for other, is_linked in ((new - 1, linked[new]), (new + 1, linked[new + 1])):
                if is_linked and not taken[other] and scores[other] >= lowest:
                    gains[other] += adjacency_bonus
                    heapq.heappush(heap, (-(scores[other] + gains[other]), other))
    return [int(index) for index in np.flatnonzero(taken)]


def _with_needs(index: int, needs: Sequence[Sequence[int]]) -> list[int]:
    found = [index]
    for each in found:  # grows while it is walked through
        found += [other for other in dict.fromkeys(needs[each] if needs else ()) if other not in found]
    return found


def runs(pool: Pool, indices: Sequence[int]) -> list[list[int]]:
    """
    Join leaves that follow one another in their source.

    :param pool: The leaves.
    :param indices: Indices of some of them, ascending.
    :returns: Runs of indices.
    """
    joined: list[list[int]] = []
    for index in indices:
        if joined and joined[-1][-1] == index - 1 and pool.follows[index]:
            joined[-1].append(index)
        else:
            joined.append([index])
    return joined
