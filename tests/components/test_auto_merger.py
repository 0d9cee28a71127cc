import asyncio
import copy
import logging
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

import pytest
from haystack import Document, Pipeline
from haystack.components.preprocessors import HierarchicalDocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from hypothesis import given
from hypothesis import strategies as st
from trees import (
    characters_of,
    edge_store_of,
    hits_of,
    scored,
    spans_of,
    store_of,
    summary_of,
    through_yaml,
    tree_of,
    trees,
)

from haystack_adv_retrieval import AutoMerger, ParentExpander, SentenceWindowExpander
from haystack_adv_retrieval.context.budgets import length_of
from haystack_adv_retrieval.core import chunks

REFUNDS = ["Refunds are possible within 30 days. ", "A receipt is needed. ", "The money arrives within 14 days.\n\n"]
SHIPPING = ["We ship every day of the week. ", "Shipping is free. ", "Islands cost five euros more.\n"]
TEXT = "".join(REFUNDS + SHIPPING)


@pytest.fixture
def tree():
    return tree_of(TEXT, block_sizes=[16, 8])


@pytest.fixture
def deep_tree():
    return tree_of(TEXT, block_sizes=[100, 16, 8])


def contents(results):
    return [result.content for result in results]


def haystack_tree(text=TEXT, sizes=(8, 2)):
    splitter = HierarchicalDocumentSplitter(block_sizes=set(sizes), split_overlap=0, split_by="word")
    return splitter.run(documents=[Document(content=text)])["documents"]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("threshold", 0),
        ("threshold", 1.01),
        ("threshold", -0.5),
        ("min_hits", 0),
        ("max_level", 0),
        ("top_k", 0),
        ("max_length", 0),
        ("score_aggregation", "median"),
        ("length_unit", "page"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name_and_value(parameter, value):
    with pytest.raises(ValueError, match=f"{parameter} .*{value!r}"):
        AutoMerger(InMemoryDocumentStore(), **{parameter: value})


def test_settings_survive_yaml():
    settings = {
        "threshold": 1.0,
        "min_hits": 2,
        "max_level": 2,
        "score_aggregation": "mean",
        "top_k": 4,
        "max_length": 800,
        "length_unit": "token",
        "raise_on_failure": True,
    }
    restored = through_yaml(AutoMerger(InMemoryDocumentStore(), **settings))
    assert {name: getattr(restored, name) for name in settings} == settings


def test_no_hits_give_no_results_and_no_store_call():
    store = store_of([])
    assert AutoMerger(store).run(documents=[]) == {"documents": []}
    assert store.calls == []


def test_a_section_that_is_covered_comes_whole_and_a_single_sentence_alone(tree):
    refund, shipping, other_refund = hits = scored(tree.leaves[0], tree.leaves[4], tree.leaves[1])
    store = store_of(tree.all)
    results = AutoMerger(store, threshold=0.5).run(documents=hits)["documents"]
    assert [(result.content, result.score) for result in results] == [
        ("".join(REFUNDS), 0.9),
        ("Shipping is free. ", 0.8),
    ]
    assert results[0].meta[chunks.MATCHED_SPANS] == [[*spans_of([refund])[0], 0.9], [*spans_of([other_refund])[0], 0.7]]
    assert results[1].meta[chunks.EXPANDED_FROM] == [shipping.id]
    assert len(store.calls) == 1


@pytest.mark.parametrize(("how", "expected"), [("max", 0.9), ("sum", 1.6), ("mean", 0.8)])
def test_the_score_of_a_parent_is_made_of_its_hits(tree, how, expected):
    hits = scored(tree.leaves[0], tree.leaves[4], tree.leaves[1])
    [result, _] = AutoMerger(store_of(tree.all), score_aggregation=how).run(documents=hits)["documents"]
    assert result.score == pytest.approx(expected)


def test_coverage_counts_characters_and_exactly_the_threshold_is_enough(tree):
    share = len(REFUNDS[0]) / len("".join(REFUNDS))
    store = store_of(tree.all)
    hits = [tree.leaves[0]]
    for threshold, merged in ((share, True), (share + 0.001, False)):
        results = AutoMerger(store, threshold=threshold).run(documents=hits)["documents"]
        assert contents(results) == (["".join(REFUNDS)] if merged else [REFUNDS[0]])


def test_a_third_of_three_is_a_third():
    tree = tree_of("One two three. Two two three. Six two three. ", block_sizes=[9, 3])
    assert [len(one.content) for one in tree.leaves] == [15, 15, 15]
    assert contents(AutoMerger(store_of(tree.all), threshold=1 / 3).run(documents=tree.leaves[:1])["documents"]) == [
        tree.text
    ]


def test_a_threshold_of_one_asks_for_every_child(tree):
    store = store_of(tree.all)
    merger = AutoMerger(store, threshold=1.0)
    assert contents(merger.run(documents=tree.leaves[:3])["documents"]) == ["".join(REFUNDS)]
    assert contents(merger.run(documents=tree.leaves[:2])["documents"]) == REFUNDS[:2]
    assert len(store.calls) == 1  # nothing is read for parents that do not pass


def test_a_hit_that_was_found_twice_counts_once(tree):
    hits = [replace(tree.leaves[1], score=score) for score in (0.2, 0.9, 0.5)]
    [result] = AutoMerger(store_of(tree.all), threshold=0.3).run(documents=hits)["documents"]
    assert (result.content, result.score) == (REFUNDS[1], 0.9)


def test_min_hits_keeps_a_large_child_from_lifting_its_parent_alone(tree):
    store = store_of(tree.all)
    assert contents(AutoMerger(store, 0.3, min_hits=2).run(documents=[tree.leaves[0]])["documents"]) == [REFUNDS[0]]
    both = AutoMerger(store, 0.3, min_hits=2).run(documents=tree.leaves[:2])["documents"]
    assert contents(both) == ["".join(REFUNDS)]


def test_min_hits_counts_the_children_of_each_level(deep_tree):
    refunds = AutoMerger(store_of(deep_tree.all), 0.3, min_hits=2).run(documents=deep_tree.leaves[:3])["documents"]
    assert contents(refunds) == ["".join(REFUNDS)]


def test_merging_climbs_level_by_level_with_one_look_up_each(deep_tree):
    store = store_of(deep_tree.all)
    hits = scored(*deep_tree.leaves[:2], *deep_tree.leaves[3:5])
    [result] = AutoMerger(store, threshold=0.5).run(documents=hits)["documents"]
    assert result.content == TEXT
    assert len(result.meta[chunks.EXPANDED_FROM]) == 4
    assert len(store.calls) == 2


def test_merging_stops_at_the_coarsest_level_asked_for(deep_tree):
    hits = scored(*deep_tree.leaves)
    results = AutoMerger(store_of(deep_tree.all), max_level=2).run(documents=hits)["documents"]
    assert contents(results) == ["".join(REFUNDS), "".join(SHIPPING)]


def test_a_parent_that_was_hit_itself_takes_its_children_in(tree):
    store = store_of(tree.all)
    hits = scored(tree.leaves[1], tree.parents[0])
    [result] = AutoMerger(store, threshold=1.0).run(documents=hits)["documents"]
    assert (result.id, result.score) == (tree.parents[0].id, 0.9)
    assert result.meta[chunks.EXPANDED_FROM] == [hit.id for hit in hits]
    assert store.calls == []


def test_a_parent_that_was_hit_climbs_with_the_hits_below_it(deep_tree):
    refunds, shipping = deep_tree.level(2)
    hits = scored(deep_tree.leaves[0], refunds, shipping)
    [result] = AutoMerger(store_of(deep_tree.all), raise_on_failure=True).run(documents=hits)["documents"]
    assert (result.content, result.score) == (TEXT, 0.9)
    assert result.meta[chunks.EXPANDED_FROM] == [hit.id for hit in hits]


def test_an_ancestor_that_was_hit_takes_in_what_did_not_merge(deep_tree):
    hits = scored(deep_tree.leaves[4], *deep_tree.level(1))
    [result] = AutoMerger(store_of(deep_tree.all), threshold=1.0).run(documents=hits)["documents"]
    assert (result.content, result.score) == (TEXT, 0.9)


def test_results_of_equal_score_come_in_the_order_of_their_hits(tree):
    hits = [replace(tree.leaves[place], score=None) for place in (0, 4, 1)]
    results = AutoMerger(store_of(tree.all)).run(documents=hits)["documents"]
    assert contents(results) == ["".join(REFUNDS), SHIPPING[1]]


def test_a_missing_parent_returns_its_hits_marked_with_one_warning(tree, caplog):
    gone = tree.parents[0].id
    store = store_of(one for one in tree.all if one.id != gone)
    hits = scored(*tree.leaves)
    with caplog.at_level(logging.WARNING):
        results = AutoMerger(store).run(documents=hits)["documents"]
    assert contents(results) == [*REFUNDS, "".join(SHIPPING)]
    assert [result.meta.get(chunks.MISSING) for result in results] == [[gone], [gone], [gone], None]
    assert len(caplog.records) == 1
    with pytest.raises(ValueError, match=gone):
        AutoMerger(store, raise_on_failure=True).run(documents=hits)


def test_a_hit_without_a_parent_passes_through(tree):
    plain = Document(id="plain", content="On its own.", meta={"parent_id": "nobody", "level": 7})
    results = AutoMerger(store_of(tree.all)).run(documents=scored(plain, *tree.leaves[:2]))["documents"]
    assert contents(results) == ["On its own.", "".join(REFUNDS)]


def test_top_k_and_budget_count_what_was_merged(tree):
    hits = scored(*tree.leaves[:2], tree.leaves[4])
    merger = AutoMerger(store_of(tree.all), top_k=1)
    assert contents(merger.run(documents=hits)["documents"]) == ["".join(REFUNDS)]
    assert len(merger.run(documents=hits, top_k=2)["documents"]) == 2
    [cut] = merger.run(documents=hits, max_length=40)["documents"]
    assert cut.content == REFUNDS[0].strip()


def test_windows_count_for_the_characters_they_hold(tree):
    store = store_of(tree.all)
    window = SentenceWindowExpander(store, within="parent").run(documents=scored(tree.leaves[1]))["documents"]
    assert contents(AutoMerger(store, threshold=1.0).run(documents=window)["documents"]) == ["".join(REFUNDS)]
    alone = AutoMerger(store, threshold=1.0, min_hits=2).run(documents=window)["documents"]
    assert (alone[0].id, alone[0].content) == (window[0].id, window[0].content)


def test_windows_of_several_hits_count_as_several_children(tree):
    store = store_of(tree.all)
    windows = SentenceWindowExpander(store, 0).run(documents=scored(*tree.leaves[:2]))["documents"]
    assert len(windows) == 1
    [result] = AutoMerger(store, min_hits=2).run(documents=windows)["documents"]
    assert (result.content, result.score) == ("".join(REFUNDS), 0.9)


def test_a_parent_that_was_cut_does_not_stand_for_the_whole(tree):
    store = store_of(tree.all)
    cut = ParentExpander(store, max_length=22).run(documents=[tree.leaves[1]])["documents"]
    assert contents(cut) == [REFUNDS[1].strip()]
    results = AutoMerger(store, threshold=1.0).run(documents=[*cut, tree.leaves[0]])["documents"]
    assert characters_of(spans_of(results)) >= characters_of(spans_of([*cut, tree.leaves[0]]))
    [whole] = AutoMerger(store, threshold=1.0).run(documents=[*cut, *tree.leaves[:3]])["documents"]
    assert whole.content == "".join(REFUNDS)


def test_summaries_become_their_sections(deep_tree):
    section = deep_tree.level(2)[1]
    summary = summary_of(section, "Shipping is daily and free.")
    hits = scored(summary, deep_tree.leaves[0])
    store = store_of(deep_tree.all)
    results = AutoMerger(store, threshold=0.9, min_hits=2).run(documents=hits)["documents"]
    assert contents(results) == ["".join(SHIPPING), REFUNDS[0]]
    assert results[0].meta[chunks.MATCHED_SPANS] == [[*spans_of([section])[0], 0.9]]
    [result] = AutoMerger(store).run(documents=[summary_of(deep_tree.level(1)[0], "All about orders.")])["documents"]
    assert result.content == TEXT


def test_a_summary_does_not_stand_for_text_that_it_does_not_hold(tree):
    """Its section is gone from the store, so the leaf in that section must not be dropped for the summary."""
    hits = scored(summary_of(tree.parents[0], "x" * len("".join(REFUNDS))), tree.leaves[1])
    results = AutoMerger(store_of(tree.leaves), threshold=1.0).run(documents=hits)["documents"]
    assert [result.id for result in results] == [hit.id for hit in hits]


def test_chunks_of_haystacks_splitter_merge_by_the_share_of_distinct_children():
    found = haystack_tree()
    by_id = {one.id: one for one in found}
    block = next(one for one in found if len(one.meta["__children_ids"]) == 4 and one.meta["__level"] == 1)
    children = [by_id[id_] for id_ in block.meta["__children_ids"]]
    store = store_of(found)
    for threshold, count, merged in ((0.5, 2, True), (0.5, 1, False), (1.0, 3, False), (1.0, 4, True)):
        results = AutoMerger(store, threshold=threshold, max_level=2).run(documents=scored(*children[:count]))[
            "documents"
        ]
        assert [result.id for result in results] == ([block.id] if merged else [one.id for one in children[:count]])
    twice = AutoMerger(store).run(documents=scored(children[0], children[0]))["documents"]
    assert [result.id for result in twice] == [children[0].id]


def test_chunks_of_haystacks_splitter_merge_up_to_the_whole_text():
    found = haystack_tree()
    store = store_of(found)
    leaves = [one for one in found if one.meta["__level"] == 2]
    [result] = AutoMerger(store).run(documents=scored(*leaves))["documents"]
    assert result.content == TEXT
    assert len(store.calls) == 2
    root_and_leaf = AutoMerger(store).run(documents=scored(found[0], leaves[0]))["documents"]
    assert found[0].id in [result.id for result in root_and_leaf]


def test_a_parent_of_haystacks_splitter_takes_its_children_in():
    found = haystack_tree()
    block = next(one for one in found if one.meta["__level"] == 1)
    child = next(one for one in found if one.id == block.meta["__children_ids"][0])
    results = AutoMerger(store_of(found), threshold=1.0).run(documents=scored(child, block))["documents"]
    assert [(result.id, result.score) for result in results] == [(block.id, 0.9)]


def test_only_plain_metadata_is_needed(tree):
    assert all(isinstance(value, str | int | float | bool) for one in tree.all for value in one.meta.values())


def test_the_embedded_store_gives_the_same(deep_tree, tmp_path):
    found = haystack_tree()
    everything = [*deep_tree.all, *found]
    hits = scored(*deep_tree.leaves[:2], *[one for one in found if one.meta["__level"] == 2][:3])
    edge = edge_store_of(everything, tmp_path)
    results = AutoMerger(edge).run(documents=hits)
    assert results == AutoMerger(store_of(everything)).run(documents=hits)
    assert edge.calls == ["get_documents_by_id", "get_documents_by_id"]
    edge.close()


SHARES = st.sampled_from([Fraction(1, 100), Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(1)])


def merged(tree, hits, share, min_hits, max_level):
    """Say which chunks are left and which hits are behind each, with sets of characters and nothing else."""
    chunk_of = {one.id: one for one in tree.all}
    left = {hit.id: {hit.id} for hit in hits}
    for level in range(max(one.meta[chunks.LEVEL] for one in tree.all), max_level, -1):
        families = defaultdict(list)
        for id_ in left:
            if chunk_of[id_].meta[chunks.LEVEL] == level:
                families[chunk_of[id_].meta[chunks.PARENT_ID]].append(id_)
        for parent, children in families.items():
            characters = characters_of(spans_of(chunk_of[child] for child in children))
            whole = characters_of(spans_of([chunk_of[parent]]))
            if parent in left or (len(children) >= min_hits and len(characters & whole) >= share * len(whole)):
                left[parent] = left.get(parent, set()).union(*(left.pop(child) for child in children))
    for id_ in sorted(left, key=lambda id_: -chunk_of[id_].meta[chunks.LEVEL]):  # of equal spans the coarser one stays
        own = characters_of(spans_of([chunk_of[id_]]))
        for other in left:
            if other != id_ and own <= characters_of(spans_of([chunk_of[other]])):
                left[other] |= left.pop(id_)
                break
    return left


@given(trees(), st.data(), SHARES, st.integers(1, 3), st.integers(1, 2), st.sampled_from(["max", "sum", "mean"]))
def test_what_merges_is_what_a_count_of_characters_says(tree, data, share, min_hits, max_level, how):
    hits = data.draw(hits_of(tree.all))
    before = copy.deepcopy(hits)
    store = store_of(tree.all)
    merger = AutoMerger(store, float(share), min_hits=min_hits, max_level=max_level, score_aggregation=how)
    results = merger.run(documents=hits)["documents"]
    assert hits == before
    assert len(store.calls) <= max(0, max(one.meta[chunks.LEVEL] for one in tree.all) - max_level)

    expected = merged(tree, hits, share, min_hits, max_level)
    assert {result.id: set(result.meta[chunks.EXPANDED_FROM]) for result in results} == expected
    spans = spans_of(results)
    assert not any(one.contains(other) for one in spans for other in spans if one is not other)
    combine = {"max": max, "sum": sum, "mean": fmean}[how]
    for result, span in zip(results, spans, strict=True):
        assert result.content == tree.text[slice(*span)]
        best = defaultdict(list)
        for hit in hits:
            if hit.id in expected[result.id] and hit.score is not None:
                best[hit.id].append(hit.score)
        scores = [max(one) for one in best.values()]
        assert result.score == (pytest.approx(combine(scores)) if scores else None)
    ranks = [(result.score is None, -(result.score or 0)) for result in results]
    assert ranks == sorted(ranks)


@given(trees(), st.data(), SHARES)
def test_whatever_is_missing_no_hit_is_lost(tree, data, share):
    hits = data.draw(hits_of(tree.all))
    stored = [one for one in tree.all if data.draw(st.booleans())]
    results = AutoMerger(store_of(stored), float(share)).run(documents=hits)["documents"]
    spans = spans_of(results)
    assert characters_of(spans) >= characters_of(spans_of(hits))
    assert not any(one.contains(other) for one in spans for other in spans if one is not other)
    assert {id_ for result in results for id_ in result.meta[chunks.EXPANDED_FROM]} == {hit.id for hit in hits}
    absent = {one.id for one in tree.parents} - {one.id for one in stored}
    for result in results:
        assert set(result.meta.get(chunks.MISSING, [])) <= absent
        assert result.content == tree.text[slice(*spans_of([result])[0])]


@given(st.lists(st.integers(0, 40), max_size=14), SHARES, st.booleans())
def test_no_chunk_of_haystacks_splitter_is_lost_or_returned_with_its_parent(places, share, with_parents):
    found = haystack_tree(TEXT * 2, (12, 6, 2))
    by_id = {one.id: one for one in found}
    candidates = [one for one in found if with_parents or not one.meta["__children_ids"]]
    hits = [candidates[place % len(candidates)] for place in places]
    results = AutoMerger(store_of(found), float(share)).run(documents=hits)["documents"]
    ids = {result.id for result in results}
    assert len(ids) == len(results)
    assert not {by_id[id_].meta["__parent_id"] for id_ in ids} & ids
    assert {id_ for result in results for id_ in result.meta[chunks.EXPANDED_FROM]} == {hit.id for hit in hits}
    for result in results:
        for hit_id in result.meta[chunks.EXPANDED_FROM]:
            ancestor = hit_id
            while ancestor != result.id:
                ancestor = by_id[ancestor].meta["__parent_id"]


@given(trees(), st.data(), st.integers(1, 120), st.sampled_from(["character", "word", "token"]), st.integers(1, 4))
def test_budgets_hold(tree, data, max_length, unit, top_k):
    hits = data.draw(hits_of(tree.leaves))
    merger = AutoMerger(store_of(tree.all), max_length=max_length, length_unit=unit, top_k=top_k)
    results = merger.run(documents=hits)["documents"]
    assert len(results) <= top_k
    assert sum(length_of(result.content, unit) for result in results) <= max_length
    assert bool(results) == bool(hits)
    for result in results:
        assert result.content == tree.text[slice(*spans_of([result])[0])]


@given(trees(), st.data(), SHARES)
def test_async_gives_the_same(tree, data, share):
    hits = data.draw(hits_of(tree.all))
    merger = AutoMerger(store_of(tree.all), float(share), top_k=3)
    assert asyncio.run(merger.run_async(documents=hits, max_length=99)) == merger.run(documents=hits, max_length=99)


def test_it_works_in_a_pipeline_and_through_yaml(tree):
    store = InMemoryDocumentStore(index="auto-merger")
    store.write_documents(tree.all)
    pipeline = Pipeline()
    only_leaves = {"field": "meta.unit", "operator": "==", "value": "leaf"}
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, filters=only_leaves, top_k=2))
    pipeline.add_component("merger", AutoMerger(store))
    pipeline.connect("retriever.documents", "merger.documents")
    restored = Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_adv_retrieval"])
    for one in (pipeline, restored):
        [result] = one.run({"retriever": {"query": "within days"}})["merger"]["documents"]
        assert result.content == "".join(REFUNDS)
        [result] = asyncio.run(one.run_async({"retriever": {"query": "within days"}}))["merger"]["documents"]
        assert result.content == "".join(REFUNDS)
