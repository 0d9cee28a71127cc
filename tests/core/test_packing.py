import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.evidence import Pool
from haystack_adv_retrieval.core.packing import pack, runs


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
    assert pack(pool([10] * 4), np.array([0.1, 0.9, 0.5, 0.7]), 20) == [1, 3]
    assert pack(pool([10] * 4), np.array([0.1, 0.9, 0.5, 0.7]), 9) == []
    assert pack(pool([]), np.array([]), 9) == []


def test_a_neighbour_is_drawn_in_and_a_gap_is_closed():
    scores = np.array([1.0, 0.3, 0.9, 0.45, 0.0])
    assert pack(pool([10] * 5), scores, 30) == [0, 2, 3]
    assert pack(pool([10] * 5), scores, 30, adjacency_bonus=0.2) == [0, 1, 2]


def test_nothing_is_drawn_in_across_a_gap():
    scores = np.array([1.0, 0.3, 0.4])
    assert pack(pool([10] * 3, sources=[0, 1, 1]), scores, 20, adjacency_bonus=0.2) == [0, 2]


def test_once_a_better_one_does_not_fit_only_what_touches_is_added():
    lengths, scores = [10, 5, 50, 5, 5], np.array([1.0, 0.1, 0.9, 0.5, 0.4])
    assert pack(pool(lengths), scores, 30) == [0, 1]
    assert pack(pool([50, 5, 5]), np.array([1.0, 0.5, 0.4]), 30) == [1, 2]  # nothing was taken yet


def test_the_floor_ends_packing_early():
    assert pack(pool([10] * 3), np.array([1.0, 0.6, 0.4]), 100, floor=0.5) == [0, 1]


def test_a_leaf_brings_what_it_needs_as_far_as_it_fits():
    scores, needs = np.array([0.0, 0.1, 0.2, 1.0]), [[], [0], [], [1]]
    assert pack(pool([10] * 4), scores, 30, needs=needs) == [0, 1, 3]
    assert pack(pool([10] * 4), scores, 30, needs=needs, floor=0.9) == [0, 1, 3]
    assert pack(pool([10] * 4), scores, 25, needs=needs) == [2, 3]


@st.composite
def pools(draw):
    leaves = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2), st.floats(0, 1)), max_size=40))
    lengths, sources, scores = zip(*sorted(leaves, key=lambda leaf: leaf[1]), strict=True) if leaves else ((), (), ())
    index = st.lists(st.integers(0, max(0, len(leaves) - 1)), max_size=3)
    needs = draw(st.lists(index, min_size=len(leaves), max_size=len(leaves)))
    return pool(list(lengths), list(sources)), np.array(scores, dtype=float), needs


@given(pools(), st.integers(1, 200), st.floats(0, 1))
def test_the_budget_is_never_exceeded_and_what_touches_and_fits_is_never_left(made, budget, bonus):
    leaves, scores, needs = made
    taken = pack(leaves, scores, budget, adjacency_bonus=bonus, needs=needs)
    assert taken == sorted(set(taken))
    left = budget - leaves.lengths[taken].sum()
    assert left >= 0
    before = [run[0] - 1 for run in runs(leaves, taken) if leaves.follows[run[0]]]
    after = [run[-1] + 1 for run in runs(leaves, taken) if leaves.follows[run[-1] + 1 :][:1].any()]
    assert all(leaves.lengths[other] > left for other in before + after)


@given(pools(), st.floats(0, 1))
def test_with_enough_budget_everything_above_the_floor_is_taken(made, floor):
    leaves, scores, _ = made
    taken = pack(leaves, scores, 10_000, floor=floor)
    assert taken == [index for index, value in enumerate(scores) if value >= floor * scores.max()]


def test_runs_join_what_follows_one_another_in_a_source():
    made = pool([1] * 5, sources=[0, 0, 0, 1, 1])
    assert runs(made, [0, 1, 3, 4]) == [[0, 1], [3, 4]]
    assert runs(made, [1, 2, 3]) == [[1, 2], [3]]
    assert runs(made, []) == []
