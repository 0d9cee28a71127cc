import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.packing import Pool, lexical_scores, pack, runs, score, spread, surroundings


def pool(lengths: list[int], sources: list[int] | None = None, sections: list[int] | None = None) -> Pool:
    count = len(lengths)
    return Pool(
        sources=np.array(sources or [0] * count),
        ordinals=np.arange(count),
        sections=np.array(sections or [-1] * count),
        lengths=np.array(lengths),
        texts=[f"leaf number {index} of many" for index in range(count)],
    )


def test_surroundings_weigh_near_leaves_of_the_same_source():
    weights = surroundings(pool([1] * 4, sources=[0, 0, 0, 1]), radius=1)
    assert weights.tolist() == [[1, 0.5, 0, 0], [0.5, 1, 0.5, 0], [0, 0.5, 1, 0], [0, 0, 0, 1]]


def test_words_of_the_question_count_more_where_they_are_rare():
    texts = ["the weir is old", "the mill is old", "the moss is old"]
    scores = lexical_scores("the weir", texts, [])
    assert scores.argmax() == 0
    assert scores[1] == pytest.approx(scores[2])


def test_a_leaf_among_relevant_ones_beats_one_that_stands_alone():
    vectors = np.array([[1.0, 0.0], [0.8, 0.6], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.8, 0.6], [0.0, 1.0], [0.0, 1.0]])
    leaves = Pool(**(vars(pool([10] * 8)) | {"vectors": vectors}))
    scores = score(leaves, "xyz", np.array([1.0, 0.0]), scales=[1], lexical_weight=1.0)
    assert scores[1] > scores[5]


def test_without_vectors_the_words_alone_decide():
    leaves = Pool(
        **(vars(pool([10] * 3)) | {"texts": ["a quiet grey stone", "the old weir holds", "moss on the wall"]})
    )
    assert score(leaves, "weir", None, [1], 1.0).argmax() == 1


def test_a_neighbour_is_drawn_in_and_a_gap_is_closed():
    scores = np.array([1.0, 0.3, 0.9, 0.35, 0.0])
    assert pack(pool([10] * 5), scores, 30, adjacency_bonus=0.0) == [0, 2, 3]
    assert pack(pool([10] * 5), scores, 30, adjacency_bonus=0.1) == [0, 1, 2]


def test_a_section_grows_whole_where_much_of_it_is_taken():
    leaves = pool([10] * 6, sections=[0, 0, 0, 0, 1, 1])
    scores = np.array([1.0, 0.9, 0.8, 0.1, 0.5, 0.4])
    assert pack(leaves, scores, 40, adjacency_bonus=0.0) == [0, 1, 2, 4]
    assert pack(leaves, scores, 40, adjacency_bonus=0.0, section_bonus=1.0) == [0, 1, 2, 3]


def test_the_floor_ends_packing_early():
    assert pack(pool([10] * 3), np.array([1.0, 0.6, 0.4]), 100, floor=0.5) == [0, 1]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2), st.floats(0, 2)), max_size=40),
    st.integers(1, 200),
    st.floats(0, 1),
    st.floats(0, 2),
)
def test_the_budget_is_never_exceeded_and_nothing_that_fits_is_left(leaves, budget, adjacency, section):
    leaves = sorted(leaves, key=lambda leaf: leaf[1])
    made = pool(
        [leaf[0] for leaf in leaves], [leaf[1] for leaf in leaves] or None, [leaf[1] for leaf in leaves] or None
    )
    scores = np.array([leaf[2] for leaf in leaves])
    taken = pack(made, scores, budget, adjacency_bonus=adjacency, section_bonus=section)
    assert taken == sorted(set(taken))
    left = budget - sum(made.lengths[index] for index in taken)
    assert left >= 0
    assert all(made.lengths[index] > left for index in set(range(len(leaves))) - set(taken))


def test_runs_join_what_follows_one_another_in_a_source():
    made = pool([1] * 5, sources=[0, 0, 0, 1, 1])
    assert runs(made, [0, 1, 3, 4]) == [[0, 1], [3, 4]]
    assert runs(made, [1, 2, 3]) == [[1, 2], [3]]


def test_equal_values_spread_to_nothing():
    assert spread(np.array([3.0, 3.0])).tolist() == [0.0, 0.0]
    assert spread(np.array([])).tolist() == []
    assert spread(np.array([1.0, 3.0, 2.0])).tolist() == [0.0, 1.0, 0.5]
