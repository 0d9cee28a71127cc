"""
Ranking candidates with a judge that can order only a few of them at a time.

A strategy is a generator: it yields groups of candidates, all of which can be judged at the same time, and is sent each
group in its new order, or None if its judgement failed. It returns the candidates in tiers, best first; candidates in
one tier are tied. Candidates are numbers, their positions in the first stage's order.
"""

import math
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")
Group = list[int]
Tiers = list[list[int]]
Judged = Generator[list[Group], Sequence[Group | None], T]

ADVANCING = 0.4  # share of a group that goes on to the next stage of a tournament


def completed(labels: Sequence[int], group: Group) -> Group:
    """
    Make a ranking of a group out of the labels that a judge named.

    :param labels: Distinct labels from 1, positions in the group, best first; they may be incomplete.
    :param group: The candidates that were judged, in the order they were shown.
    :returns: All candidates of the group: those named, then the others in the first stage's order.
    """
    named = [group[label - 1] for label in labels]
    return named + sorted(set(group) - set(named))


def windows(count: int, size: int, stride: int) -> list[tuple[int, int]]:
    """
    Lay windows over a list, from its end to its start, the last of them at the very start.

    :param count: Length of the list.
    :param size: Length of a window.
    :param stride: How far each window is from the one before; at most `size`, so that they touch.
    :returns: Start and end of each.
    """
    starts = [*range(count - size, 0, -stride), 0]
    return [(start, min(start + size, count)) for start in starts]


def sliding(
    order: Sequence[int],
    size: int,
    stride: int,
    num_passes: int = 1,
    if_failed: Callable[[Group], Group] = list,
) -> Judged[Tiers]:
    """
    Rank windows from the back to the front, so that the best of each moves on to the next, as in RankGPT.

    See [Sun et al. 2023](https://arxiv.org/abs/2304.09542). The calls wait for each other.

    :param order: The candidates in the order to start from.
    :param size: Candidates in a window.
    :param stride: Candidates that are new in each window.
    :param num_passes: How often to go through the list.
    :param if_failed: The order of a window whose judgement failed.
    :returns: The candidates, best first, without ties.
    """
    ranked = list(order)
    for _ in range(num_passes):
        for start, end in windows(len(ranked), size, stride):
            window = ranked[start:end]
            [judged] = yield [window]
            ranked[start:end] = judged or if_failed(window)
    return [[candidate] for candidate in ranked]


def elimination(order: Sequence[int], size: int) -> Judged[Tiers]:
    """
    Play one tournament: the best of each group meet in the next stage, until one group is left.

    The stages wait for each other, the groups of a stage do not: 100 candidates in groups of 20 take 3 stages.

    :param order: The candidates; who meets whom follows from it.
    :param size: Candidates in a group, at least 2.
    :returns: The candidates in the order they went out; the same place in the same stage is a tie.
    """
    alive, out = list(order), Tiers()
    while True:
        count = math.ceil(len(alive) / size)
        groups = [alive[first::count] for first in range(count)]
        judged = yield groups
        ranked = [new or sorted(group) for new, group in zip(judged, groups, strict=True)]
        places = [[group[place] for group in ranked if place < len(group)] for place in range(len(ranked[0]))]
        if count == 1:
            return places + out
        advancing = math.ceil(len(places) * ADVANCING)
        out = places[advancing:] + out
        alive = [candidate for place in places[:advancing] for candidate in place]


def abreast(rankings: Sequence[Judged[T]]) -> Judged[list[T]]:
    """
    Advance several rankings side by side: what each waits for next is judged at the same time.

    :param rankings: The rankings.
    :returns: Their results, in the given order.
    """
    results: dict[int, T] = {}
    waiting = {index: next(ranking) for index, ranking in enumerate(rankings)}
    while waiting:
        judged = yield [group for groups in waiting.values() for group in groups]
        answers = iter(judged)
        for index, groups in list(waiting.items()):
            try:
                waiting[index] = rankings[index].send([next(answers) for _ in groups])
            except StopIteration as stop:
                results[index] = stop.value
                del waiting[index]
    return [results[index] for index in range(len(rankings))]


def points(rankings: Sequence[Tiers]) -> dict[int, float]:
    """
    Combine rankings by a Borda count.

    A place has the worth it has in DCG, `1 / log2(rank + 1)`, and not one point a place: else a good candidate that
    one of the rankings put last could never make up for it. Ties share the worth of their places.

    :param rankings: Rankings of the same candidates.
    :returns: For each candidate its mean points, from 0 to 1; 1 is first in every ranking.
    """
    total: dict[int, float] = {}
    for tiers in rankings:
        rank = 0
        for tier in tiers:
            worth = sum(1 / math.log2(rank + place + 2) for place in range(len(tier))) / len(tier)
            rank += len(tier)
            for candidate in tier:
                total[candidate] = total.get(candidate, 0.0) + worth / len(rankings)
    return total
