import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.evidence import (
    Pool,
    dense_scores,
    lexical_scores,
    score,
    spread,
    words_of,
)

UNITS = st.floats(-1, 1, allow_nan=False)


def pool(texts, *, ordinals=None, sources=None, sections=None, vectors=None, ranks=None) -> Pool:
    count = len(texts)
    return Pool(
        sources=np.array(sources or [0] * count, dtype=int),
        ordinals=np.array(ordinals or range(count), dtype=int),
        sections=np.array(sections or [0] * count, dtype=int),
        lengths=np.array([len(text) for text in texts], dtype=int),
        texts=texts,
        vectors=None if vectors is None else np.array(vectors, dtype=float),
        ranks=None if ranks is None else np.array(ranks, dtype=float),
    )


def test_a_run_ends_at_a_gap_and_at_the_end_of_a_source():
    made = pool(["x"] * 6, ordinals=[0, 1, 3, 4, 0, 1], sources=[0, 0, 0, 0, 1, 1])
    assert made.runs == [range(0, 2), range(2, 4), range(4, 6)]
    assert made.follows.tolist() == [False, True, False, True, False, True]
    assert pool([]).runs == []


def test_neighbours_touch_within_a_run():
    made = pool(["x"] * 5, ordinals=[0, 1, 2, 9, 10])
    assert [made.neighbors(index) for index in range(5)] == [[1], [0, 2], [1], [4], [3]]


def test_surroundings_weigh_near_leaves_of_the_same_run():
    values = np.array([1.0, 10.0, 100.0, 1000.0])
    sums = pool(["x"] * 4, ordinals=[0, 1, 2, 9]).around(values, 1)
    assert sums.tolist() == [1 + 5, 0.5 + 10 + 50, 5 + 100, 1000]


def test_surroundings_in_a_long_run_take_memory_for_the_near_leaves_alone():
    values = np.arange(100_000.0)
    sums = pool(["x"] * len(values)).around(values, 3)
    assert sums[3:-3] == pytest.approx(4 * values[3:-3])


@given(st.lists(st.tuples(UNITS, UNITS), max_size=20), st.integers(1, 6))
def test_surroundings_are_sums_weighted_by_distance(rows, radius):
    values = np.array(rows).reshape(-1, 2)
    places = range(len(rows))
    expected = [sum(max(0, 1 - abs(a - b) / (radius + 1)) * values[b] for b in places) for a in places]
    assert pool(["x"] * len(rows)).around(values, radius) == pytest.approx(np.array(expected).reshape(-1, 2), abs=1e-9)


def test_a_vector_counts_together_with_the_direction_of_its_surroundings():
    vectors = np.array([[1.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    # The middle one: (0, 1) of its own, and half of both others around it, (1, 1) / sqrt(2).
    middle = np.array([1 / 2**0.5, 1 + 1 / 2**0.5])
    scores = dense_scores(np.array([2.0, 0.0]), pool(["x"] * 3), vectors, [1])
    assert scores[1] == pytest.approx(middle[0] / np.linalg.norm(middle))
    assert scores[0] > scores[1]
    assert dense_scores(np.array([1.0, 0.0]), pool(["x"] * 2), np.zeros((2, 2)), []).tolist() == [0, 0]


def test_words_of_the_question_count_more_where_they_are_rare():
    texts = ["the weir is old", "the mill is old", "the moss is old"]
    scores = lexical_scores("the weir", pool(texts), [])
    assert scores.argmax() == 0
    assert scores[1] == pytest.approx(scores[2])


def test_bm25_of_a_leaf_alone_is_the_textbook_value():
    # Two texts of two words each: length norm 1, one occurrence, idf log(1 + (2 - 1 + 0.5) / 1.5).
    assert lexical_scores("weir", pool(["old weir", "old mill"]), []) == pytest.approx([np.log(2), 0])


def test_words_nearby_count_too():
    texts = ["the old weir", "it is here", "moss grows", "tea is hot", "we sing", "it rains"]
    scores = lexical_scores("weir", pool(texts), [1])
    assert scores[0] > scores[1] > scores[2] == scores[3] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Refunds, PAID: straße", ["refunds", "paid", "strasse"]),
        ("max_length", ["max_length", "max", "length"]),
        ("parseHTTPReply2Go", ["parsehttpreply2go", "parse", "httpreply2", "go"]),
        ("__init__", ["__init__", "init"]),
        ("数据库 index", ["数", "据", "库", "index"]),
        ("", []),
    ],
)
def test_words_are_folded_and_names_are_taken_apart_too(text, words):
    assert words_of(text) == words


def test_a_name_in_code_is_found_by_its_parts():
    texts = ["class DiffExecutor:", "class OtherThing:"]
    assert lexical_scores("what does the executor do", pool(texts), [])[0] > 0


def test_a_leaf_among_relevant_ones_beats_one_that_stands_alone():
    vectors = [[1.0, 0.0], [0.8, 0.6], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.8, 0.6], [0.0, 1.0], [0.0, 1.0]]
    scores = score(pool(["x"] * 8, vectors=vectors), "y", np.array([1.0, 0.0]), scales=[1])
    assert scores[1] > scores[5]


def test_the_best_of_a_section_lifts_the_rest_of_it():
    texts = ["the weir", "moss", "rain", "the mill", "moss", "rain"]
    made = pool(texts, sections=[0, 0, 0, 1, 1, 1])
    assert score(made, "weir", scales=[], section_weight=0)[1] == 0
    lifted = score(made, "weir", scales=[], section_weight=2)
    assert lifted[1] == lifted[2] == pytest.approx(2 / 3)
    assert lifted[3:].tolist() == [0, 0, 0]


def test_without_vectors_the_words_and_the_order_of_the_hits_decide():
    texts = ["a quiet grey stone", "the old weir holds", "moss on the wall"]
    assert score(pool(texts), "weir").argmax() == 1
    ranked = pool(texts, ranks=[0, 0, 1], vectors=[[1, 0], [0, 1], [0, 1]])
    assert score(ranked, "nothing of this", scales=[]).tolist() == [0, 0, 1]
    assert score(ranked, "nothing of this", np.array([1.0, 0.0]), scales=[]).argmax() == 0


def test_the_order_of_the_hits_counts_if_it_is_given_a_weight():
    made = pool(["x"] * 3, ranks=[0, 0.5, 1], vectors=[[1, 0], [0, 1], [0, 1]], sections=[0, 1, 2])
    vector = np.array([1.0, 0.0])
    assert score(made, "y", vector, scales=[], rank_weight=0).argmax() == 0
    assert score(made, "y", vector, scales=[], rank_weight=2).argmax() == 2


def test_equal_values_spread_to_nothing():
    assert spread(np.array([3.0, 3.0])).tolist() == [0.0, 0.0]
    assert spread(np.array([3.0]), flat=1.0).tolist() == [1.0]
    assert spread(np.array([])).tolist() == []
    assert spread(np.array([1.0, 3.0, 2.0])).tolist() == [0.0, 1.0, 0.5]


@given(
    st.lists(st.tuples(st.text("ab weir", max_size=8), UNITS, UNITS, st.integers(0, 3)), min_size=1, max_size=12),
    st.lists(st.integers(1, 5), max_size=3),
    st.booleans(),
)
def test_scores_reach_from_0_to_1_whatever_the_pool(leaves, scales, with_query):
    texts, xs, ys, sections = zip(*leaves, strict=True)
    made = pool(list(texts), sections=list(sections), vectors=list(zip(xs, ys, strict=True)), ranks=[0.5] * len(texts))
    scores = score(made, "weir" if with_query else "", np.array([1.0, 0.5]), scales=scales)
    assert scores.max() == 1
    assert scores.min() in (0, 1)


def test_an_empty_pool_has_no_scores():
    assert score(pool([]), "weir", np.array([1.0])).tolist() == []
