import copy
import logging
from dataclasses import replace
from statistics import fmean

import pytest
from haystack import Document
from haystack.dataclasses import SparseEmbedding
from hypothesis import given
from hypothesis import strategies as st
from trees import SCORES

from haystack_adv_retrieval.context.budgets import length_of
from haystack_adv_retrieval.context.results import (
    Passage,
    aggregate,
    best_of_each,
    best_passages,
    by_score,
    focus_of,
    hit_spans,
    report_problems,
)


def hit(id_: str, score: float | None = None, **meta) -> Document:
    return Document(id=id_, content=f"Text of {id_}.", meta=meta, score=score)


@pytest.mark.parametrize(
    ("how", "expected"),
    [("max", 0.5), ("sum", 0.25), ("mean", 0.25 / 3)],
)
def test_zero_is_a_score_and_none_is_not(how, expected):
    assert aggregate([0.0, None, 0.5, -0.25], how) == pytest.approx(expected)
    assert aggregate([None, None], how) is None
    assert aggregate([0.0], how) == 0.0


def test_documents_without_a_score_come_last_and_equal_ones_keep_their_order():
    documents = [hit("a"), hit("b", 0.0), hit("c", -1.0), hit("d", 0.0), hit("e")]
    assert [document.id for document in by_score(documents)] == ["b", "d", "c", "a", "e"]


def test_a_document_that_was_found_twice_keeps_its_best_score_and_its_first_place():
    found = best_of_each([hit("a", 0.2), hit("b", 0.5), hit("a", 0.9), hit("a"), hit("b", 0.4)])
    assert [(document.id, document.score) for document in found] == [("a", 0.9), ("b", 0.5)]


def test_spans_of_hits_are_listed_once_best_first():
    hits = [
        hit("a", 0.2, split_idx_start=0, split_idx_end=5),
        hit("b", 0.9, split_idx_start=9, split_idx_end=12),
        hit("c", 0.3, matched_spans=[[0, 5, 0.4], [20, 22, None]]),
        hit("d", 0.5),
    ]
    assert hit_spans(hits) == [[9, 12, 0.9], [0, 5, 0.4], [20, 22, None]]


def test_the_focus_of_a_result_is_its_best_hit():
    meta = {"split_idx_start": 100, "split_idx_end": 110, "matched_spans": [[102, 104, 0.9], [106, 108, 0.1]]}
    assert focus_of(Document(content="0123456789", meta=meta)) == (2, 4)
    assert focus_of(Document(content="0123", meta=meta)) == (0, 4)  # no longer the slice that the metadata says
    assert focus_of(Document(content="0123456789")) == (0, 10)


@given(st.lists(st.tuples(st.sampled_from("ABC"), SCORES), max_size=8), st.sampled_from(["max", "sum", "mean"]))
def test_passages_of_one_chunk_collapse_and_come_best_first(found, how):
    hits = [hit(f"h{place}", score) for place, (_, score) in enumerate(found)]
    passages = [Passage(hit(chunk), [one]) for one, (chunk, _) in zip(hits, found, strict=True)]
    results = best_passages(passages[::-1], hits, score_aggregation=how)
    combine = {"max": max, "sum": sum, "mean": fmean}[how]
    expected: dict[str, float | None] = {}
    for chunk in dict.fromkeys(chunk for chunk, _ in found):
        scores = [score for name, score in found if name == chunk and score is not None]
        expected[chunk] = combine(scores) if scores else None
    ranked = sorted(expected, key=lambda chunk: (expected[chunk] is None, -(expected[chunk] or 0)))
    assert [(result.id, result.score) for result in results] == [(chunk, expected[chunk]) for chunk in ranked]
    for result in results:
        behind = [one.id for one, (chunk, _) in zip(hits, found, strict=True) if chunk == result.id]
        assert result.meta["expanded_from"] == behind


def test_a_result_shares_nothing_with_the_chunk_and_has_no_embeddings():
    chunk = Document(
        id="p", content="Text", meta={"tags": ["a"]}, embedding=[0.1], sparse_embedding=SparseEmbedding([0], [1.0])
    )
    before = copy.deepcopy(chunk)
    one = hit("h", 0.5, expanded_from=["h1", "h2"])
    [result] = best_passages([Passage(chunk, [one], ["x", "x"])], [one])
    result.meta["tags"].append("b")
    assert chunk == before
    assert (result.embedding, result.sparse_embedding) == (None, None)
    assert result.meta == {"tags": ["a", "b"], "expanded_from": ["h1", "h2"], "missing": ["x"]}


def passages_of(*contents: str) -> tuple[list[Passage], list[Document]]:
    hits = [hit(f"h{place}", 1.0 - place / 10) for place in range(len(contents))]
    chunks = [Document(id=f"p{place}", content=content) for place, content in enumerate(contents)]
    return [Passage(chunk, [one]) for chunk, one in zip(chunks, hits, strict=True)], hits


def test_what_does_not_fit_the_budget_is_left_out_and_smaller_ones_take_its_place():
    passages, hits = passages_of("x" * 50, "y" * 60, "z" * 40, "w" * 11, "v" * 10)
    results = best_passages(passages, hits, max_length=100)
    assert [result.id for result in results] == ["p0", "p2", "p4"]


def test_top_k_counts_what_is_kept():
    passages, hits = passages_of("x" * 50, "y" * 60, "z" * 40)
    assert [result.id for result in best_passages(passages, hits, top_k=2, max_length=100)] == ["p0", "p2"]


def test_the_best_result_alone_is_cut_if_it_is_too_large():
    passages, hits = passages_of("One is here. Two is the hit. Three follows.", "Tiny.")
    hits[0] = replace(hits[0], content="Two is the hit.")
    passages[0].hits = [hits[0]]
    [result] = best_passages(passages, hits, max_length=20)
    assert (result.id, result.content) == ("p0", "Two is the hit.")


@given(
    st.lists(st.lists(st.sampled_from(["Refunds take time. ", "Ask us\n", "no", " "]), max_size=6), max_size=6),
    st.integers(1, 80),
    st.sampled_from(["character", "word", "token"]),
    st.one_of(st.none(), st.integers(1, 4)),
)
def test_budgets_hold_in_every_unit(texts, max_length, unit, top_k):
    passages, hits = passages_of(*map("".join, texts))
    results = best_passages(passages, hits, top_k=top_k, max_length=max_length, length_unit=unit)
    assert sum(length_of(result.content, unit) for result in results) <= max_length
    assert top_k is None or len(results) <= top_k
    assert results or not texts
    whole = {passage.chunk.id: passage.chunk.content for passage in passages}
    for place, result in enumerate(results):
        assert result.content == whole[result.id] or (place == 0 and result.content in whole[result.id])


def test_problems_are_told_once_or_raised(caplog):
    report_problems([], raise_on_failure=True)
    with caplog.at_level(logging.WARNING):
        report_problems(["a is gone", "b is gone"], raise_on_failure=False)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "2 problems" in caplog.text
    assert "a is gone" in caplog.text
    with pytest.raises(ValueError, match="a is gone"):
        report_problems(["a is gone", "b is gone"], raise_on_failure=True)
