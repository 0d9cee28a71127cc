"""Choosing leaves under a budget."""

import heapq
from collections.abc import Sequence, Set
from itertools import accumulate

import numpy as np

from haystack_adv_retrieval.core.evidence import Pool

# A part of a context is not made so small that it holds fewer leaves than these, on average.
LEAVES_OF_A_PART = 2


def pack(
    pool: Pool,
    scores: np.ndarray,
    max_length: int,
    *,
    adjacency_bonus: float = 0.0,
    floor: float = 0.0,
    needs: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """
    Take leaves, best first, until the budget is full.

    A leaf that does not fit is passed over. A leaf comes with what it needs, or alone if only that fits.

    :param pool: The leaves.
    :param scores: Their scores, from 0 to 1.
    :param max_length: The budget.
    :param adjacency_bonus: What a leaf gains for each neighbour that is taken.
    :param floor: Leaves below this share of the best score are taken only where others need them.
    :param needs: For each leaf the indices of those that come along with it; empty for none at all.
    :returns: Indices of the taken leaves, each with those that came along with it, in the order of being taken.
    """
    groups: list[list[int]] = []
    taken: set[int] = set()
    values, lengths = scores.tolist(), pool.lengths.tolist()
    lowest = floor * max(values, default=0.0)
    left = max_length
    heap = [(-value, index) for index, value in enumerate(values) if value >= lowest]
    heapq.heapify(heap)
    while heap:
        value, index = heapq.heappop(heap)
        if index in taken or -value < values[index]:
            continue  # an entry that a better one replaced
        if lengths[index] > left:
            continue
        added = with_needs(index, needs, lengths, left, taken)
        left -= sum(lengths[other] for other in added)
        groups.append(added)
        taken.update(added)
        for other in [other for new in added for other in pool.neighbors(new)] if adjacency_bonus else ():
            if other not in taken and scores[other] >= lowest:
                values[other] += adjacency_bonus
                heapq.heappush(heap, (-values[other], other))
    return groups


def parts(pool: Pool, groups: Sequence[Sequence[int]], max_length: int) -> list[list[int]]:
    """
    Divide leaves by when they were taken: in the first half of the budget or after it, in the first quarter, and so on.

    The best evidence is in the first part, whatever is taken around it later. So a context of all parts, one behind the
    other, can be cut anywhere and still holds the best that there is room for.

    :param pool: The leaves.
    :param groups: Indices of the taken ones, from `pack`; what came together stays together.
    :param max_length: The budget. It is halved as long as that leaves room for a few leaves.
    :returns: Indices of each part that is not empty, in the order of the pool.
    """
    lengths = [int(pool.lengths[group].sum()) for group in map(list, groups)]
    smallest = LEAVES_OF_A_PART * pool.lengths[[index for group in groups for index in group]].mean() if groups else 1
    limits = [max_length / 2**times for times in range(1, max_length.bit_length()) if max_length / 2**times >= smallest]
    divided: list[list[int]] = [[] for _ in range(len(limits) + 1)]
    for group, end in zip(groups, accumulate(lengths), strict=True):
        divided[sum(end > limit for limit in limits)] += group
    return [sorted(part) for part in divided if part]


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


def with_needs(
    index: int, needs: Sequence[Sequence[int]], lengths: Sequence[int], left: float, taken: Set[int]
) -> list[int]:
    """
    List a leaf, what it needs, and what that needs in turn.

    :param index: Index of the leaf.
    :param needs: For each leaf the indices of those that come along with it; empty for none at all.
    :param lengths: Their lengths.
    :param left: What is left of the budget. Nobody looks further than it reaches: what needs each other can be long.
    :param taken: Indices of those that are there already.
    :returns: Distinct indices that are not taken, the leaf's own first; that alone if all are longer than what is left.
    """
    found, known = [index], {index}
    left -= 0 if index in taken else lengths[index]
    for each in found:  # grows while it is walked through
        for other in needs[each] if needs else ():
            if other not in known:
                known.add(other)
                found.append(other)
                left -= 0 if other in taken else lengths[other]
        if left < 0:
            return [index]
    return [other for other in found if other not in taken]
