from dataclasses import replace

import pytest
from trees import tree_of

from haystack_adv_retrieval.context.leaf_pool import ids_around, pool_of, reach_of
from haystack_adv_retrieval.core import chunks

TREE = tree_of("".join(f"Sentence {number} is here. " for number in range(60)), block_sizes=[900, 8])


def ordinals_around(hits: list[int], reach: int, pool_size: int = 100) -> list[int]:
    ordinals = {leaf.id: leaf.meta[chunks.SPLIT_ID] for leaf in TREE.leaves}
    return [ordinals[id_] for id_ in ids_around([TREE.leaves[hit] for hit in hits], reach, pool_size)]


def test_later_hits_bring_fewer_of_their_neighbours():
    assert sorted(ordinals_around([30], 3)) == [*range(27, 34)]
    assert sorted(ordinals_around([10, 30], 5)) == [*range(5, 16), *range(28, 33)]
    assert sorted(ordinals_around([10, 30, 50], 10)) == [*range(21), *range(25, 36), *range(48, 53)]


@pytest.mark.parametrize(
    ("reach", "count", "reaches"),
    [(0, 3, [0, 0, 0]), (1, 3, [1, 1, 1]), (5, 2, [5, 2]), (10, 3, [10, 5, 2]), (2, 4, [2, 2, 1, 1])],
)
def test_the_reach_falls_along_the_hits(reach, count, reaches):
    assert [reach_of(rank, count, reach) for rank in range(count)] == reaches


def test_no_reach_brings_no_neighbours():
    assert ordinals_around([10, 30], 0) == [10, 30]


def test_neighbours_stay_in_their_source_and_come_once():
    assert ordinals_around([0, 1], 2) == [0, 1, 2]
    assert ordinals_around([59], 2) == [59, 57, 58]


def test_the_first_hits_fill_the_pool():
    assert ordinals_around([30, 10], 2, pool_size=6) == [30, 28, 29, 31, 32, 10]
    assert ordinals_around([30, 10], 2, pool_size=1) == [30]


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], [[1, 2], [3, 4]]),
        ([None, [1.0, 2.0]], [[0, 0], [1, 2]]),
        ([[1.0, 2.0], [5.0], [3.0, 4.0]], [[1, 2], [0, 0], [3, 4]]),
        ([[5.0], None, None, [1.0, 2.0], [3.0, 4.0]], [[0, 0], [0, 0], [0, 0], [1, 2], [3, 4]]),
    ],
)
def test_a_leaf_without_a_vector_of_the_others_dimension_gets_zeros(given, held):
    leaves = [replace(leaf, embedding=vector) for leaf, vector in zip(TREE.leaves, given, strict=False)]
    assert pool_of(leaves, leaves[:1], "character").vectors.tolist() == held


def test_leaves_without_vectors_give_a_pool_without():
    assert pool_of(TREE.leaves[:3], TREE.leaves[:1], "character").vectors is None
