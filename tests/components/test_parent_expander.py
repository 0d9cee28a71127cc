import asyncio
import copy
import logging
from dataclasses import replace
from statistics import fmean

import pytest
from haystack import Document, Pipeline
from haystack.components.preprocessors import DocumentSplitter, HierarchicalDocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from hypothesis import given
from hypothesis import strategies as st
from trees import edge_store_of, hits_of, scored, spans_of, store_of, summary_of, through_yaml, tree_of, trees

from haystack_adv_retrieval import ParentExpander, SentenceWindowExpander
from haystack_adv_retrieval.context.budgets import length_of
from haystack_adv_retrieval.core import chunks

TEXT = (
    "# Refunds\n\nRefunds are possible within 30 days. A receipt is needed. The money arrives within 14 days.\n\n"
    "# Shipping\n\nWe ship every day. Shipping is free.\n\n"
    "# Warranty\n\nThe warranty covers two years. It does not cover water.\n"
)


@pytest.fixture
def tree():
    return tree_of(TEXT)


@pytest.fixture
def deep_tree():
    return tree_of(TEXT, block_sizes=[100, 24, 8])


def leaf(tree, words):
    return next(one for one in tree.leaves if words in one.content)


def contents(results):
    return [result.content for result in results]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("level", 0),
        ("top_k", 0),
        ("max_length", 0),
        ("max_length", 2.5),
        ("score_aggregation", "median"),
        ("length_unit", "page"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name_and_value(parameter, value):
    with pytest.raises(ValueError, match=f"{parameter} .*{value!r}"):
        ParentExpander(InMemoryDocumentStore(), **{parameter: value})


def test_a_run_argument_out_of_range_is_refused(tree):
    with pytest.raises(ValueError, match=r"top_k .*0"):
        ParentExpander(store_of(tree.all)).run(documents=tree.leaves[:1], top_k=0)


def test_settings_survive_yaml():
    settings = {
        "level": 1,
        "score_aggregation": "sum",
        "top_k": 3,
        "max_length": 900,
        "length_unit": "word",
        "raise_on_failure": True,
    }
    restored = through_yaml(
        ParentExpander(InMemoryDocumentStore(), parent_id_meta_key=("mother", "father"), **settings)
    )
    assert {name: getattr(restored, name) for name in settings} == settings
    assert restored.parent_id_meta_key == ["mother", "father"]
    assert isinstance(restored.document_store, InMemoryDocumentStore)


def test_no_hits_give_no_results_and_no_store_call():
    store = store_of([])
    assert ParentExpander(store).run(documents=[]) == {"documents": []}
    assert store.calls == []


def test_hits_of_one_parent_collapse_into_it(tree):
    hits = scored(leaf(tree, "receipt"), leaf(tree, "free"), leaf(tree, "14 days"))
    results = ParentExpander(store_of(tree.all)).run(documents=hits)["documents"]
    refunds, shipping = tree.parent_of(hits[0]), tree.parent_of(hits[1])
    assert [(result.id, result.content, result.score) for result in results] == [
        (refunds.id, refunds.content, 0.9),
        (shipping.id, shipping.content, 0.8),
    ]
    assert results[0].meta[chunks.MATCHED_SPANS] == [[*spans_of(hits)[0], 0.9], [*spans_of(hits)[2], 0.7]]
    assert results[0].meta[chunks.EXPANDED_FROM] == [hits[0].id, hits[2].id]
    assert {key: results[0].meta[key] for key in refunds.meta} == refunds.meta


@pytest.mark.parametrize(("how", "expected"), [("max", 0.9), ("sum", 1.6), ("mean", 0.8)])
def test_the_score_of_a_parent_is_made_of_its_hits(tree, how, expected):
    hits = scored(leaf(tree, "receipt"), leaf(tree, "free"), leaf(tree, "14 days"))
    [result, _] = ParentExpander(store_of(tree.all), score_aggregation=how).run(documents=hits)["documents"]
    assert result.score == pytest.approx(expected)


def test_a_level_is_climbed_to_with_one_look_up_a_level(deep_tree):
    store = store_of(deep_tree.all)
    hits = scored(leaf(deep_tree, "receipt"), leaf(deep_tree, "water"))
    results = ParentExpander(store, level=1).run(documents=hits)["documents"]
    assert contents(results) == [TEXT]
    assert len(store.calls) == 2
    store.calls.clear()
    results = ParentExpander(store, level=2).run(documents=hits)["documents"]
    assert [result.id for result in results] == [deep_tree.parent_of(hit).id for hit in hits]
    assert len(store.calls) == 1


def test_hits_at_the_level_or_above_pass_through(deep_tree):
    store = store_of(deep_tree.all)
    hits = scored(*deep_tree.level(1), *deep_tree.level(2))
    results = ParentExpander(store, level=2).run(documents=hits)["documents"]
    assert [result.id for result in results] == [hit.id for hit in hits]
    assert store.calls == []


def test_hits_of_several_levels_need_no_more_look_ups_than_there_are_levels(deep_tree):
    store = store_of(deep_tree.all)
    hits = scored(*deep_tree.level(3), *deep_tree.level(2))
    [result] = ParentExpander(store, level=1).run(documents=hits)["documents"]
    assert len(store.calls) == 2
    assert len(result.meta[chunks.EXPANDED_FROM]) == len(hits)


def test_a_hit_without_a_parent_passes_through_in_its_place(tree):
    plain = Document(id="plain", content="On its own.", meta={"tags": ["a"]})
    first, _, last = hits = scored(leaf(tree, "receipt"), plain, leaf(tree, "free"))
    results = ParentExpander(store_of(tree.all)).run(documents=hits)["documents"]
    assert [result.id for result in results] == [tree.parent_of(first).id, "plain", tree.parent_of(last).id]
    assert results[1].meta == {"tags": ["a"], chunks.EXPANDED_FROM: ["plain"]}


def test_a_missing_parent_returns_the_hit_marked_with_one_warning(tree, caplog):
    gone = tree.parents[0].id
    store = store_of(one for one in tree.all if one.id != gone)
    hits = scored(leaf(tree, "receipt"), leaf(tree, "free"), leaf(tree, "14 days"))
    with caplog.at_level(logging.WARNING):
        results = ParentExpander(store).run(documents=hits)["documents"]
    assert [result.id for result in results] == [hits[0].id, tree.parent_of(hits[1]).id, hits[2].id]
    assert [result.meta.get(chunks.MISSING) for result in results] == [[gone], None, [gone]]
    assert len(caplog.records) == 1
    assert gone in caplog.text


def test_a_missing_grandparent_returns_the_parent_marked(deep_tree):
    top = deep_tree.level(1)[0].id
    store = store_of(one for one in deep_tree.all if one.id != top)
    hits = scored(leaf(deep_tree, "receipt"), leaf(deep_tree, "14 days"))
    [result] = ParentExpander(store, level=1).run(documents=hits)["documents"]
    assert result.id == deep_tree.parent_of(hits[0]).id
    assert result.meta[chunks.MISSING] == [top]


def test_failures_are_raised_on_request(tree):
    strict = ParentExpander(store_of(tree.leaves), raise_on_failure=True)
    with pytest.raises(ValueError, match=tree.leaves[0].meta[chunks.PARENT_ID]):
        strict.run(documents=tree.leaves[:1])
    with pytest.raises(ValueError, match="plain"):
        strict.run(documents=[Document(id="plain", content="On its own.")])


def test_the_coarsest_blocks_are_no_failure(tree):
    strict = ParentExpander(store_of(tree.all), raise_on_failure=True)
    assert contents(strict.run(documents=tree.parents)["documents"]) == contents(tree.parents)


def test_top_k_counts_parents(tree):
    hits = scored(
        leaf(tree, "receipt"), leaf(tree, "14 days"), leaf(tree, "30 days"), leaf(tree, "free"), leaf(tree, "water")
    )
    expander = ParentExpander(store_of(tree.all), top_k=2)
    assert len(expander.run(documents=hits)["documents"]) == 2
    assert len(expander.run(documents=hits, top_k=3)["documents"]) == 3


def test_parents_of_equal_score_come_in_the_order_of_their_hits(tree):
    hits = [replace(leaf(tree, words), score=None) for words in ("water", "free", "receipt", "two years")]
    results = ParentExpander(store_of(tree.all)).run(documents=hits)["documents"]
    assert [result.meta[chunks.HEADINGS] for result in results] == ["Warranty", "Shipping", "Refunds"]


def test_a_parent_that_does_not_fit_gives_its_place_to_a_smaller_one(tree):
    hits = scored(leaf(tree, "free"), leaf(tree, "receipt"), leaf(tree, "water"))
    shipping, refunds, warranty = (tree.parent_of(hit) for hit in hits)
    budget = len(shipping.content) + len(warranty.content)
    assert len(refunds.content) > len(warranty.content)
    results = ParentExpander(store_of(tree.all)).run(documents=hits, max_length=budget)["documents"]
    assert contents(results) == [shipping.content, warranty.content]


def test_a_parent_that_is_too_large_by_itself_is_cut_around_its_best_hit(tree):
    hits = scored(leaf(tree, "receipt"), leaf(tree, "30 days"), leaf(tree, "free"))
    [result] = ParentExpander(store_of(tree.all), max_length=30).run(documents=hits)["documents"]
    assert result.content == "A receipt is needed."
    [span] = spans_of([result])
    assert TEXT[slice(*span)] == result.content
    assert result.meta[chunks.MATCHED_SPANS][0][:2] == [span.start, span.end + 1]


def test_summaries_expand_to_their_sections(deep_tree):
    store = store_of(deep_tree.all)
    section = deep_tree.level(2)[1]
    hits = scored(summary_of(section, "Shipping is daily and free."), leaf(deep_tree, "receipt"))
    results = ParentExpander(store).run(documents=hits)["documents"]
    assert contents(results) == [section.content, deep_tree.parent_of(hits[1]).content]
    assert results[0].meta[chunks.MATCHED_SPANS] == [[*spans_of([section])[0], 0.9]]
    top = summary_of(deep_tree.level(1)[0], "All about orders.")
    for level in (1, 2):
        [result] = ParentExpander(store, level=level).run(documents=[top])["documents"]
        assert result.content == TEXT
    [result] = ParentExpander(store, level=1).run(documents=hits)["documents"]
    assert result.content == TEXT


def test_a_summary_and_a_leaf_of_one_section_collapse(tree):
    hits = scored(summary_of(tree.parents[1], "Shipping is daily and free."), leaf(tree, "free"))
    [result] = ParentExpander(store_of(tree.all)).run(documents=hits)["documents"]
    assert (result.id, result.score) == (tree.parents[1].id, 0.9)


def test_windows_inside_of_a_parent_expand_to_it(tree):
    store = store_of(tree.all)
    windows = SentenceWindowExpander(store, within="parent").run(documents=scored(leaf(tree, "receipt")))["documents"]
    [result] = ParentExpander(store).run(documents=windows)["documents"]
    assert result.id == tree.parents[0].id
    assert result.meta[chunks.MATCHED_SPANS] == [[*spans_of([leaf(tree, "receipt")])[0], 0.9]]


def test_chunks_of_haystacks_hierarchical_splitter_have_parents():
    splitter = HierarchicalDocumentSplitter(block_sizes={8, 3}, split_overlap=0, split_by="word")
    found = splitter.run(documents=[Document(content=TEXT)])["documents"]
    by_id = {one.id: one for one in found}
    leaves = [one for one in found if one.meta["__level"] == 2]
    store = store_of(found)
    results = ParentExpander(store).run(documents=scored(leaves[4], leaves[0]))["documents"]
    assert [result.id for result in results] == [leaves[4].meta["__parent_id"], leaves[0].meta["__parent_id"]]
    [root] = ParentExpander(store, level=1).run(documents=scored(leaves[4], leaves[0]))["documents"]
    assert root.content == TEXT
    middle = ParentExpander(store, level=2).run(documents=[leaves[4]])["documents"]
    assert middle[0].content == by_id[leaves[4].meta["__parent_id"]].content
    [cut] = ParentExpander(store, level=1, max_length=40).run(documents=[leaves[4]])["documents"]
    assert cut.content in TEXT
    assert leaves[4].content.split()[0] in cut.content


def test_chunks_of_haystacks_splitter_expand_to_whole_documents():
    whole = Document(id="terms", content=TEXT)
    split = DocumentSplitter(split_by="word", split_length=6).run(documents=[whole])["documents"]
    expander = ParentExpander(store_of([whole, *split]), parent_id_meta_key="source_id")
    [result] = expander.run(documents=scored(*split[2:4]))["documents"]
    assert (result.id, result.content, result.score) == ("terms", TEXT, 0.9)


def test_a_chain_of_parents_that_bites_its_tail_ends():
    chain = [Document(id=one, content=one, meta={"parent_id": other}) for one, other in ("ab", "bc", "ca")]
    results = ParentExpander(store_of(chain), level=1).run(documents=chain[:1])["documents"]
    assert contents(results) == ["b"]


def test_the_embedded_store_gives_the_same(deep_tree, tmp_path):
    hits = scored(leaf(deep_tree, "receipt"), leaf(deep_tree, "free"), summary_of(deep_tree.level(2)[2], "Two years."))
    edge = edge_store_of(deep_tree.all, tmp_path)
    for level in (None, 1, 2):
        edge.calls.clear()
        results = ParentExpander(edge, level=level).run(documents=hits)
        assert results == ParentExpander(store_of(deep_tree.all), level=level).run(documents=hits)
        assert set(edge.calls) == {"get_documents_by_id"}
        assert len(edge.calls) == (2 if level == 1 else 1)
    edge.close()


@given(trees(), st.data(), st.sampled_from([None, 1, 2, 3]), st.sampled_from(["max", "sum", "mean"]))
def test_every_hit_is_in_its_parent_with_its_score(tree, data, level, how):
    hits = data.draw(hits_of(tree.all))
    before = copy.deepcopy(hits)
    store = store_of(tree.all)
    results = ParentExpander(store, level=level, score_aggregation=how).run(documents=hits)["documents"]
    assert hits == before
    depth = max(one.meta[chunks.LEVEL] for one in tree.all)
    assert len(store.calls) <= (1 if level is None else max(0, depth - level))

    by_id = {one.id: one for one in tree.all}

    def target(hit):
        if level is None:
            return hit.meta.get(chunks.PARENT_ID, hit.id)
        while hit.meta[chunks.LEVEL] > level:
            hit = by_id[hit.meta[chunks.PARENT_ID]]
        return hit.id

    scores: dict[str, dict[str, list[float]]] = {}
    for hit in hits:
        known = scores.setdefault(target(hit), {}).setdefault(hit.id, [])
        known += [] if hit.score is None else [hit.score]
    combine = {"max": max, "sum": sum, "mean": fmean}[how]
    expected = {}
    for parent, found in scores.items():
        best = [max(one) for one in found.values() if one]
        expected[parent] = combine(best) if best else None
    ranked = sorted(expected, key=lambda parent: (expected[parent] is None, -(expected[parent] or 0)))
    assert [(result.id, result.score) for result in results] == [(parent, expected[parent]) for parent in ranked]
    for result in results:
        assert result.content == by_id[result.id].content == tree.text[slice(*spans_of([result])[0])]
        assert set(result.meta[chunks.EXPANDED_FROM]) == scores[result.id].keys()


@given(trees(), st.data(), st.integers(1, 120), st.sampled_from(["character", "word", "token"]), st.integers(1, 4))
def test_budgets_hold_and_texts_stay_slices(tree, data, max_length, unit, top_k):
    hits = data.draw(hits_of(tree.leaves))
    expander = ParentExpander(store_of(tree.all), max_length=max_length, length_unit=unit, top_k=top_k)
    results = expander.run(documents=hits)["documents"]
    assert len(results) <= top_k
    assert sum(length_of(result.content, unit) for result in results) <= max_length
    assert bool(results) == bool(hits)
    for result in results:
        assert result.content == tree.text[slice(*spans_of([result])[0])]


@given(trees(), st.data())
def test_async_gives_the_same(tree, data):
    hits = data.draw(hits_of(tree.all))
    expander = ParentExpander(store_of(tree.all), level=1, top_k=3)
    assert asyncio.run(expander.run_async(documents=hits, max_length=99)) == expander.run(documents=hits, max_length=99)


def test_it_works_in_a_pipeline_and_through_yaml(tree):
    store = InMemoryDocumentStore(index="parent-expander")
    store.write_documents(tree.all)
    pipeline = Pipeline()
    only_leaves = {"field": "meta.unit", "operator": "==", "value": "leaf"}
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, filters=only_leaves, top_k=1))
    pipeline.add_component("expander", ParentExpander(store))
    pipeline.connect("retriever.documents", "expander.documents")
    restored = Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_adv_retrieval"])
    for one in (pipeline, restored):
        [result] = one.run({"retriever": {"query": "receipt"}})["expander"]["documents"]
        assert result.content == tree.parents[0].content
        [result] = asyncio.run(one.run_async({"retriever": {"query": "receipt"}}))["expander"]["documents"]
        assert result.content == tree.parents[0].content
