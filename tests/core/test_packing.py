import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.evidence import Pool
from haystack_adv_retrieval.core.packing import pack, parts, runs


def pool(lengths: list[int], sources: list[int] | None = None) -> Pool:
    count = len(lengths)
    return Pool(
        sources=np.array(sources or [0] * count, dtype=int),
        ordinals=np.arange(count),
        sections=np.zeros(count, dtype=int),
        lengths=np.array(lengths, dtype=int),
        texts=["x" * length for length in lengths],
    )


def test_the_best_come_first_until_the_budget_is_full():
    assert taken_of(pool([10] * 4), np.array([0.1, 0.9, 0.5, 0.7]), 20) == [1, 3]
    assert taken_of(pool([10] * 4), np.array([0.1, 0.9, 0.5, 0.7]), 9) == []
    assert taken_of(pool([]), np.array([]), 9) == []


def test_one_that_does_not_fit_is_passed_over():
    assert taken_of(pool([10, 50, 5]), np.array([1.0, 0.9, 0.5]), 30) == [0, 2]


def test_a_neighbour_is_drawn_in_and_a_gap_is_closed():
    scores = np.array([1.0, 0.3, 0.9, 0.45, 0.0])
    assert taken_of(pool([10] * 5), scores, 30) == [0, 2, 3]
    assert taken_of(pool([10] * 5), scores, 30, adjacency_bonus=0.2) == [0, 2, 1]


def test_nothing_is_drawn_in_across_a_gap():
    scores = np.array([1.0, 0.3, 0.4])
    assert taken_of(pool([10] * 3, sources=[0, 1, 1]), scores, 20, adjacency_bonus=0.2) == [0, 2]


def test_the_floor_ends_packing_early():
    assert taken_of(pool([10] * 3), np.array([1.0, 0.6, 0.4]), 100, floor=0.5) == [0, 1]


def test_a_leaf_brings_what_it_needs_as_far_as_it_fits():
    scores, needs = np.array([0.0, 0.1, 0.2, 1.0]), [[], [0], [], [1, 1]]
    assert pack(pool([10] * 4), scores, 30, needs=needs) == [[3, 1, 0]]
    assert taken_of(pool([10] * 4), scores, 30, needs=needs, floor=0.9) == [3, 1, 0]
    assert pack(pool([10] * 4), scores, 25, needs=needs) == [[3], [2]]


def test_many_leaves_that_all_need_each_other_are_judged_soon():
    others = [[other for other in range(300) if other != index] for index in range(300)]
    scores = np.linspace(1.0, 0.1, 300)
    assert pack(pool([10] * 300), scores, 2990, needs=others) == [[index] for index in range(299)]
    assert pack(pool([10] * 300), scores, 3000, needs=others) == [[*range(300)]]


def test_what_was_taken_first_is_a_part_of_its_own():
    groups = [[4], [0], [5], [1], [2, 3]]
    assert parts(pool([10] * 6), groups, 120) == [[0, 4, 5], [1, 2, 3]]
    assert parts(pool([10] * 6), groups, 80) == [[0, 4], [1, 5], [2, 3]]
    assert parts(pool([10] * 6), groups, 39) == [[0, 1, 2, 3, 4, 5]]
    assert parts(pool([]), [], 80) == []


def taken_of(*arguments, **settings) -> list[int]:
    return [index for group in pack(*arguments, **settings) for index in group]


@st.composite
def pools(draw):
    leaves = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2), st.floats(0, 1)), max_size=40))
    lengths, sources, scores = zip(*sorted(leaves, key=lambda leaf: leaf[1]), strict=True) if leaves else ((), (), ())
    index = st.lists(st.integers(0, max(0, len(leaves) - 1)), max_size=3)
    needs = draw(st.lists(index, min_size=len(leaves), max_size=len(leaves)))
    return pool(list(lengths), list(sources)), np.array(scores, dtype=float), needs


@given(pools(), st.integers(1, 200), st.floats(0, 1))
def test_the_budget_is_never_exceeded_and_nothing_that_fits_is_left(made, budget, bonus):
    leaves, scores, needs = made
    taken = taken_of(leaves, scores, budget, adjacency_bonus=bonus, needs=needs)
    assert len(set(taken)) == len(taken)
    left = budget - leaves.lengths[taken].sum()
    assert left >= 0
    assert all(leaves.lengths[other] > left for other in set(range(len(scores))) - set(taken))


@given(pools(), st.floats(0, 1))
def test_with_enough_budget_everything_above_the_floor_is_taken_best_first(made, floor):
    leaves, scores, _ = made
    taken = taken_of(leaves, scores, 10_000, floor=floor)
    assert sorted(taken) == [index for index, value in enumerate(scores) if value >= floor * scores.max()]
    assert scores[taken].tolist() == sorted(scores[taken], reverse=True)


@given(pools(), st.integers(1, 400))
def test_what_fills_the_first_half_of_the_budget_comes_before_the_rest(made, budget):
    leaves, scores, needs = made
    groups = pack(leaves, scores, budget, needs=needs)
    divided = parts(leaves, groups, budget)
    assert sorted(itertools.chain(*divided)) == sorted(itertools.chain(*groups))
    before = [leaves.lengths[list(itertools.chain(*divided[:count]))].sum() for count in range(1, len(divided))]
    assert all(length <= budget / 2 for length in before)


def test_runs_join_what_follows_one_another_in_a_source():
    made = pool([1] * 5, sources=[0, 0, 0, 1, 1])
    assert runs(made, [0, 1, 3, 4]) == [[0, 1], [3, 4]]
    assert runs(made, [1, 2, 3]) == [[1, 2], [3]]
    assert runs(made, []) == []
