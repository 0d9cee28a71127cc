import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.ranking import (
    Group,
    Judged,
    abreast,
    completed,
    elimination,
    points,
    sliding,
    windows,
)

Judge = Callable[[Group], Group | None]


def play(strategy: Judged[Any], judge: Judge) -> tuple[Any, list[list[Group]]]:
    """Run a strategy with a judge; also give what was asked at each step."""
    steps: list[list[Group]] = []
    try:
        groups = next(strategy)
        while True:
            steps.append([list(group) for group in groups])
            groups = strategy.send([judge(group) for group in groups])
    except StopIteration as stop:
        return stop.value, steps


def perfect(group: Group) -> Group:
    """The best candidate is the one with the highest number."""
    return sorted(group, reverse=True)


def fails(_: Group) -> None:
    return None


def flat(tiers: list[list[int]]) -> list[int]:
    return [candidate for tier in tiers for candidate in tier]


def test_forgotten_candidates_follow_in_the_first_order() -> None:
    assert completed([3, 1], [7, 2, 5, 4]) == [5, 7, 2, 4]
    assert completed([], [7, 2, 5]) == [2, 5, 7]


@pytest.mark.parametrize(
    ("count", "size", "stride", "expected"),
    [
        (3, 5, 2, [(0, 3)]),
        (5, 5, 2, [(0, 5)]),
        (9, 5, 2, [(4, 9), (2, 7), (0, 5)]),
        (8, 5, 2, [(3, 8), (1, 6), (0, 5)]),  # the last window is at the very start, however the strides fall
        (100, 20, 10, [(start, start + 20) for start in range(80, -1, -10)]),
    ],
)
def test_windows_go_from_the_back_to_the_very_front(
    count: int, size: int, stride: int, expected: list[tuple[int, int]]
) -> None:
    assert windows(count, size, stride) == expected


def test_sliding_windows_bring_the_best_to_the_front_in_one_pass() -> None:
    tiers, steps = play(sliding(range(100), 20, 10), perfect)
    assert flat(tiers)[:10] == list(range(99, 89, -1))
    assert [len(groups) for groups in steps] == [1] * 9


def test_enough_passes_sort_everything() -> None:
    tiers, _ = play(sliding(range(12), 4, 2, num_passes=6), perfect)
    assert flat(tiers) == list(range(11, -1, -1))


def test_a_failed_window_keeps_its_order() -> None:
    judge: Judge = lambda group: None if 0 in group else perfect(group)  # noqa: E731
    tiers, _ = play(sliding(range(6), 4, 2), judge)
    assert flat(tiers) == [0, 1, 5, 4, 3, 2]
    assert flat(play(sliding([2, 0, 1], 4, 2, if_failed=sorted), fails)[0]) == [0, 1, 2]


def test_a_tournament_finds_the_best_in_few_steps_whatever_the_order() -> None:
    for order in (range(100), range(99, -1, -1), random.Random(0).sample(range(100), 100)):
        tiers, steps = play(elimination(order, 20), perfect)
        assert flat(tiers)[0] == 99
        assert [len(groups) for groups in steps] == [5, 2, 1]


def test_those_who_go_out_at_the_same_place_are_tied() -> None:
    tiers, steps = play(elimination([0, 1, 2, 3], 2), perfect)
    assert steps == [[[0, 2], [1, 3]], [[2, 3]]]
    assert tiers == [[3], [2], [0, 1]]


def test_a_failed_group_of_a_tournament_falls_back_to_the_first_order() -> None:
    assert play(elimination([3, 1, 0, 2], 4), fails)[0] == [[0], [1], [2], [3]]


def test_rankings_abreast_are_asked_together_and_end_as_if_alone() -> None:
    alone = [play(sliding(range(9), 4, 2), perfect), play(elimination(range(9), 4), perfect)]
    together, steps = play(abreast([sliding(range(9), 4, 2), elimination(range(9), 4)]), perfect)
    assert together == [tiers for tiers, _ in alone]
    assert len(steps) == max(len(each) for _, each in alone)


def test_points_are_those_of_dcg_averaged() -> None:
    worth = points([[[0], [1], [2]], [[0], [2], [1]]])
    assert worth[0] == 1
    assert worth[1] == worth[2] == pytest.approx((1 / math.log2(3) + 1 / 2) / 2)


def test_ties_share_their_points() -> None:
    worth = points([[[0], [1, 2]]])
    assert worth[1] == worth[2] == pytest.approx((1 / math.log2(3) + 1 / 2) / 2)


@given(st.data())
def test_every_strategy_ends_with_every_candidate_once(data: st.DataObject) -> None:
    count, size = data.draw(st.integers(1, 40)), data.draw(st.integers(2, 12))
    stride = data.draw(st.integers(1, size))
    order = data.draw(st.permutations(range(count)))
    judge: Judge = lambda group: data.draw(st.none() | st.permutations(group))  # noqa: E731
    for strategy in (sliding(order, size, stride), elimination(order, size)):
        tiers, steps = play(strategy, judge)
        assert sorted(flat(tiers)) == list(range(count))
        assert all(0 < len(group) <= size for groups in steps for group in groups)
        assert set(points([tiers])) == set(range(count))
