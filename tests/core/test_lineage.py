import pytest

from haystack_adv_retrieval.core.lineage import extent_of, level_of, parent_id_of
from haystack_adv_retrieval.core.spans import Span

CONTRACT = {"source_version": "v", "leaf_level": 3}


@pytest.mark.parametrize(
    ("meta", "level"),
    [
        (CONTRACT | {"level": 2}, 2),
        (CONTRACT | {"level": 1, "unit": "summary"}, 2),
        (CONTRACT, 3),
        ({"__level": 0}, 1),
        ({"__level": 2}, 3),
        ({"level": "expert"}, 0),
        ({"level": 7}, 0),
        ({}, 0),
    ],
)
def test_levels_count_from_the_coarsest_chunk(meta, level):
    assert level_of(meta) == level


def test_the_first_key_that_holds_a_parent_counts():
    assert parent_id_of({"parent_id": None, "__parent_id": "p"}) == "p"
    assert parent_id_of({"mother": "m", "parent_id": "p"}, ["mother", "parent_id"]) == "m"
    assert parent_id_of({"parent_id": "", "__parent_id": {"id": "p"}}) is None


def test_a_summary_stands_for_its_section():
    meta = CONTRACT | {"unit": "summary", "parent_idx_start": 5, "parent_idx_end": 9}
    assert extent_of(meta) == Span(5, 9)
    assert extent_of({"split_idx_start": 1, "split_idx_end": 4}) == Span(1, 4)
    assert extent_of({"split_idx_start": 1}) is None
