import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.leaf_needs import leaf_needs

LEAVES = [
    "# Plans\n\n",
    "Prices are below. ",
    "They hold for a year.\n\n",
    "| Plan | Price |\n|---|---|\n",
    "| Basic | 5 |\n",
    "| Pro | 9 |\n\n",
    "You need:\n\n",
    "- a receipt\n",
    "- an id\n",
]
ALL = [range(len(LEAVES))]


def test_a_leaf_needs_nothing():
    assert leaf_needs(LEAVES, ALL, "leaf") == []


def test_a_sentence_needs_the_rest_of_its_paragraph():
    needs = leaf_needs(LEAVES, ALL, "paragraph")
    assert needs[0] == []
    assert needs[1:3] == [[2], [1]]
    assert needs[3] == [4, 5]


def test_a_row_needs_its_header_an_item_its_lead_in_and_all_their_heading():
    needs = leaf_needs(LEAVES, ALL, "table")
    assert needs[0] == []
    assert needs[2] == [0, 1]  # "They" leans on the sentence before
    assert needs[4] == needs[5] == [0, 3]
    assert needs[7] == needs[8] == [0, 6]


@pytest.mark.parametrize("respect", ["paragraph", "table"])
def test_leaves_of_another_run_are_not_needed(respect):
    needs = leaf_needs([*LEAVES, *LEAVES], [range(0, 9), range(9, 18)], respect)
    assert [[index + 9 for index in each] for each in needs[:9]] == needs[9:]
    assert leaf_needs(LEAVES, [range(0, 2), range(2, 9)], "paragraph")[1] == []


@given(st.lists(st.text("a .#|-\n", min_size=1, max_size=12), max_size=8), st.sampled_from(["paragraph", "table"]))
def test_no_leaf_needs_itself_or_one_that_there_is_not(texts, respect):
    needs = leaf_needs(texts, [range(len(texts))], respect)
    assert len(needs) == len(texts)
    for index, each in enumerate(needs):
        assert index not in each
        assert set(each) <= set(range(len(texts)))
