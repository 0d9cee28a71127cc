import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.fusion import fused_scores

RANKINGS = st.lists(st.sampled_from("abcdefghijkl"), unique=True)


def order(scores):
    return sorted(scores, key=lambda each: -scores[each])


def test_scores_are_weighted_reciprocal_ranks():
    assert fused_scores([["a", "b"], ["b", "c"]], [0.75, 0.25]) == {"a": 0.75, "b": 0.375 + 0.25, "c": 0.125}


def test_nothing_has_no_scores():
    assert fused_scores([], []) == {}
    assert fused_scores([[], []], [0.5, 0.5]) == {}


@given(RANKINGS)
def test_one_ranking_keeps_its_order(ranking):
    assert order(fused_scores([ranking], [0.3])) == ranking


@given(RANKINGS, RANKINGS, st.sampled_from([0.2, 0.25, 0.3, 0.5]))
def test_the_best_of_the_lighter_ranking_is_near_the_top(heavy, light, weight):
    fused = order(fused_scores([heavy, light], [1 - weight, weight]))
    assert sorted(fused) == sorted({*heavy, *light})
    if light:
        # Before it can only be what the heavy ranking has in its first places, or both have near the top.
        assert fused.index(light[0]) <= 2 * math.ceil((1 - weight) / weight)


@pytest.mark.parametrize("weight", [0.2, 0.3, 0.5])
def test_disjoint_rankings_are_interleaved_by_their_weights(weight):
    heavy, light = [f"h{n}" for n in range(100)], [f"l{n}" for n in range(100)]
    fused = order(fused_scores([heavy, light], [1 - weight, weight]))
    for count in (10, 30, 60):
        assert sum(each.startswith("l") for each in fused[:count]) == pytest.approx(weight * count, abs=1)
