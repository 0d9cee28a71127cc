import copy

import pytest
from haystack import Document

from haystack_adv_retrieval.context.budgets import cut, length_of
from haystack_adv_retrieval.core.spans import Span


@pytest.mark.parametrize(("unit", "length"), [("character", 24), ("word", 4), ("token", 6)])
def test_length_is_counted_in_the_unit(unit, length):
    assert length_of("Refunds take 14 days. \n\t ", unit) == length + (unit == "character")


def test_a_cut_keeps_track_of_where_it_is():
    meta = {"split_idx_start": 100, "split_idx_end": 139, "page_number": 3, "tags": ["a"]}
    document = Document(id="p", content="One is here.\fTwo is the hit. It is last.", meta=meta, score=0.5)
    before = copy.deepcopy(document)
    text = document.content
    result = cut(document, Span(text.index("Two"), text.index(" It")), 15, "character")
    assert result.content == "Two is the hit."
    assert result.meta == {"split_idx_start": 113, "split_idx_end": 128, "page_number": 4, "tags": ["a"]}
    assert (result.id, result.score) == ("p", 0.5)
    assert document == before
    assert result.meta["tags"] is not document.meta["tags"]


def test_a_document_that_does_not_know_its_span_can_be_cut():
    result = cut(Document(content="One is here. Two is not."), Span(0, 12), 12, "character")
    assert (result.content, result.meta) == ("One is here.", {})
