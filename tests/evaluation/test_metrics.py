from collections import Counter

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.spans import Span, merge
from haystack_adv_retrieval.evaluation.metrics import (
    Passage,
    cut,
    first_relevant,
    ndcg_of_first,
    reciprocal_rank,
    source_scores,
    span_scores,
)

SOURCES = st.sampled_from(["a", "b", "c"])
SPANS = st.builds(lambda start, length: Span(start, start + length), st.integers(0, 60), st.integers(1, 25))
GOLD = st.dictionaries(SOURCES, st.lists(SPANS, min_size=1, max_size=3).map(tuple), min_size=1)


def passage(source, *spans):
    return Passage(source, tuple(Span(*span) for span in spans), sum(end - start for start, end in spans))


VERBATIM = st.builds(
    lambda source, spans: passage(source, *merge(spans)), SOURCES, st.lists(SPANS, min_size=1, max_size=3)
)
REWRITTEN = st.builds(
    lambda source, length: Passage(source, (), length), st.one_of(st.none(), SOURCES), st.integers(1, 30)
)
PASSAGES = st.lists(st.one_of(VERBATIM, REWRITTEN), max_size=6)


def characters(passages):
    """Every character that is read, as often as it is read; those of rewritten text are nobody's."""
    return [
        (passage.source, position)
        for passage in passages
        for position in ([position for span in passage.spans for position in range(*span)] or [None] * passage.length)
    ]


@given(GOLD, PASSAGES, st.integers(0, 200))
def test_span_scores_agree_with_counting_characters(gold, passages, budget):
    read = characters(passages)[:budget]
    wanted = {(source, position) for source, spans in gold.items() for span in spans for position in range(*span)}
    found = len(set(read) & wanted)
    union = sum((Counter(read) | Counter(wanted)).values())
    scores = span_scores(gold, cut(passages, budget))
    assert scores.recall == pytest.approx(found / len(wanted))
    assert scores.precision == pytest.approx(found / len(read) if read else 0)
    assert scores.iou == pytest.approx(found / union)


@given(PASSAGES, st.integers(0, 200))
def test_a_cut_is_a_prefix_of_what_is_read(passages, budget):
    assert characters(cut(passages, budget)) == characters(passages)[:budget]
    assert sum(passage.length for passage in cut(passages, budget)) == min(budget, len(characters(passages)))


@given(st.lists(st.tuples(GOLD, st.lists(VERBATIM, min_size=1, max_size=6)), min_size=1, max_size=4))
def test_ranking_metrics_agree_with_trec_eval(questions):
    qrels, run, ours = {}, {}, {}
    for number, (gold, passages) in enumerate(questions):
        wanted = set(characters(passage(source, *merge(spans)) for source, spans in gold.items()))
        relevant = [bool(wanted & set(characters([shown]))) for shown in passages]
        first = relevant.index(True) if any(relevant) else None
        # trec_eval's nDCG of the first relevant result: only that one is judged relevant.
        qrels[f"q{number}"] = {f"d{rank}": int(rank == first) for rank in range(len(passages))} | {
            "missed": int(first is None)
        }
        run[f"q{number}"] = {f"d{rank}": float(-rank) for rank in range(len(passages))}
        ours[f"q{number}"] = first_relevant(gold, set(gold), passages)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "ndcg"}).evaluate(run)
    for name, rank in ours.items():
        assert reciprocal_rank(rank) == pytest.approx(theirs[name]["recip_rank"])
        assert ndcg_of_first(rank) == pytest.approx(theirs[name]["ndcg"])


def test_text_shown_twice_is_read_twice():
    gold = {"a": (Span(0, 10),)}
    scores = span_scores(gold, [passage("a", (0, 10)), passage("a", (0, 10))])
    assert scores == (1.0, 0.5, 0.5)


def test_the_same_offsets_in_another_source_are_not_gold():
    assert span_scores({"a": (Span(0, 10),)}, [passage("b", (0, 10))]) == (0, 0, 0)


def test_gold_of_several_sources_is_one_whole():
    gold = {"a": (Span(0, 10),), "b": (Span(0, 30),)}
    assert span_scores(gold, [passage("b", (10, 30)), passage("a", (0, 5))]).recall == 25 / 40


def test_what_compression_left_out_is_not_shown():
    assert first_relevant({"a": (Span(10, 20),)}, {"a"}, [passage("a", (0, 10), (20, 30)), passage("a", (19, 21))]) == 2


def test_gold_sources_are_counted_as_wholes():
    passages = [passage("a", (0, 5)), passage("b", (0, 5)), passage("a", (5, 9)), Passage(None, (), 3)]
    assert source_scores({"a", "c"}, passages) == (1 / 2, 1 / 3, 1 / 4)
    assert first_relevant({}, {"b"}, passages) == 2


def test_nothing_retrieved_scores_zero():
    assert span_scores({"a": (Span(0, 1),)}, []) == (0, 0, 0)
    assert source_scores({"a"}, []) == (0, 0, 0)
    assert first_relevant({}, {"a"}, []) is None
    assert (reciprocal_rank(None), ndcg_of_first(None)) == (0, 0)
