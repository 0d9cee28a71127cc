import copy
import itertools
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.in_memory import InMemoryDocumentStore
from hypothesis import given
from hypothesis import strategies as st
from trees import CountingStore, edge_store_of, store_of, summary_of, through_yaml, tree_of, trees

from haystack_adv_retrieval import (
    ContextPacker,
    HierarchicalSplitter,
    LeafEmbedder,
    QueryEmbedder,
    SentenceWindowExpander,
)
from haystack_adv_retrieval.context.budgets import length_of
from haystack_adv_retrieval.core import chunks

TEXTS = {
    "refunds": "# Refunds\n\nRefunds need a receipt. They are paid within 14 days. This starts when it arrives. "
    + "Shipping is never refunded.\n\n# Weir\n\nOur weir was built in 1911. It holds back the river. Moss grows on it.",
    "tea": "Black tea needs four minutes. Green tea needs two. Water for it must not boil.",
}
QUESTION = "How long do refunds take?"
PRICES = "# Prices\n\nAll with tax.\n\n| Plan | Price |\n|---|---|\n| Basic | 5 |\n| Premium | 90 |\n\nCall us."


@pytest.fixture(scope="module")
def leaves() -> list[Document]:
    splitter = HierarchicalSplitter(block_sizes=[40, 20], leaf="sentence")
    documents = [Document(content=text, meta={"source_id": name, "team": "desk"}) for name, text in TEXTS.items()]
    return LeafEmbedder().run(splitter.run(documents)["documents"])["documents"]


@pytest.fixture
def store(leaves: list[Document]) -> InMemoryDocumentStore:
    return store_of(leaves)


@pytest.fixture(scope="module")
def vector() -> list[float]:
    return QueryEmbedder().run(QUESTION)["embedding"]


def hit(leaves: list[Document], text: str, score: float = 0.5) -> Document:
    return replace(next(leaf for leaf in leaves if text in leaf.content), score=score, embedding=None)


def spans(documents: list[Document]) -> list[tuple[int, int]]:
    return [tuple(chunks.span_of(document.meta)) for document in documents]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("max_length", 0),
        ("length_unit", "page"),
        ("reach", -1),
        ("pool_size", 0),
        ("scales", [0]),
        ("lexical_weight", -0.1),
        ("rank_weight", -1),
        ("section_weight", -0.1),
        ("adjacency_bonus", -0.1),
        ("floor", 1.5),
        ("respect", "row"),
        ("order", "best"),
        ("top_k", True),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name_and_value(parameter, value):
    with pytest.raises(ValueError, match=f"{parameter} .*{value!r}".replace("[", r"\[")):
        ContextPacker(InMemoryDocumentStore(), **{parameter: value})


@pytest.mark.parametrize("parameter", ["max_length", "top_k"])
def test_a_run_argument_out_of_range_is_refused(store, leaves, parameter):
    with pytest.raises(ValueError, match=parameter):
        ContextPacker(store).run(QUESTION, leaves[:1], **{parameter: 0})


def test_settings_survive_yaml():
    settings = {
        "max_length": 900,
        "length_unit": "word",
        "reach": 3,
        "pool_size": 90,
        "scales": [1, 4],
        "lexical_weight": 0.5,
        "rank_weight": 0.3,
        "section_weight": 1.0,
        "adjacency_bonus": 0.2,
        "floor": 0.1,
        "respect": "table",
        "language": "de",
        "order": "source",
        "top_k": 4,
        "raise_on_failure": True,
    }
    restored = through_yaml(ContextPacker(InMemoryDocumentStore(), **settings))
    assert {name: getattr(restored, name) for name in settings} == settings


def test_no_hits_give_no_results_and_no_store_call():
    store = store_of([])
    assert ContextPacker(store).run(query=QUESTION, documents=[]) == {"documents": []}
    assert store.calls == []


@pytest.mark.parametrize("unit", ["character", "word", "token"])
@pytest.mark.parametrize("budget", [3, 10, 30, 60, 120, 1000])
def test_spans_are_exact_disjoint_and_within_the_budget(store, leaves, vector, budget, unit):
    hits = [hit(leaves, "14 days", 0.9), hit(leaves, "1911", 0.3), hit(leaves, "Green tea", 0.2)]
    packer = ContextPacker(store, budget, length_unit=unit, floor=0)
    documents = packer.run(QUESTION, hits, vector)["documents"]
    assert documents
    assert sum(length_of(document.content, unit) for document in documents) <= budget
    seen: set[tuple[str, int]] = set()
    for document in documents:
        span, source = chunks.span_of(document.meta), document.meta[chunks.SOURCE_ID]
        assert TEXTS[source][span.start : span.end] == document.content
        assert document.embedding is None
        assert document.meta["team"] == "desk"
        places = {(source, position) for position in range(*span)}
        assert not places & seen
        seen |= places
    assert [document.score for document in documents] == sorted((d.score for d in documents), reverse=True)


def test_the_evidence_comes_with_what_stands_around_it(store, leaves, vector):
    best = ContextPacker(store, 110).run(QUESTION, [hit(leaves, "14 days")], vector)["documents"][0]
    assert "paid within 14 days" in best.content
    assert "starts when it arrives" in best.content or "receipt" in best.content
    assert best.score == 1
    assert best.meta[chunks.MATCHED_SPANS] == [[*chunks.span_of(hit(leaves, "14 days").meta), 0.5]]
    assert best.meta[chunks.HEADINGS] == "Refunds"
    assert best.meta[chunks.PART_IDS] == chunks.leaf_ids(best.meta, chunks.leaf_range(best.meta))


def test_a_span_without_a_hit_says_what_in_it_matched_and_where_it_came_from(store, leaves):
    [found] = [hit(leaves, "receipt")]
    [best] = ContextPacker(store, 30, floor=0.9).run("When was the weir built?", [found])["documents"]
    assert best.content == "Our weir was built in 1911. "
    assert best.meta[chunks.MATCHED_SPANS] == [[*chunks.span_of(best.meta), 1.0]]
    assert best.meta[chunks.EXPANDED_FROM] == [found.id]


def test_a_span_came_from_hits_that_reach_it_themselves():
    tree = tree_of("".join(f"This is sentence {number}. " for number in range(40)), block_sizes=[900, 8])
    first, last = tree.leaves[10], tree.leaves[20]
    packer = ContextPacker(store_of(tree.all), 30, reach=8)
    for number, origins in [(13, [first]), (16, [first]), (17, [first, last]), (23, [last])]:
        results = packer.run(str(number), [first, last])["documents"]
        assert [result.content for result in results] == [f"This is sentence {number}. "]
        assert results[0].meta[chunks.EXPANDED_FROM] == [origin.id for origin in origins]


def test_the_floor_gives_easy_questions_less(store, leaves, vector):
    hits = [hit(leaves, "14 days"), hit(leaves, "Green tea")]
    lengths = [
        sum(len(d.content) for d in ContextPacker(store, floor=floor).run(QUESTION, hits, vector)["documents"])
        for floor in (0, 0.5, 1)
    ]
    assert lengths[0] == sum(map(len, TEXTS.values()))
    assert lengths[0] > lengths[1] > lengths[2]


def test_a_section_with_evidence_comes_before_a_lone_sentence_of_another(store, leaves, vector):
    hits = [hit(leaves, "14 days"), hit(leaves, "Green tea")]
    documents = ContextPacker(store, 170, floor=0, order="source").run(QUESTION, hits, vector)["documents"]
    assert "Shipping is never refunded." in documents[0].content
    assert "tea" not in "".join(document.content for document in documents)


def test_in_source_order_spans_come_as_they_are_read(store, leaves, vector):
    hits = [hit(leaves, "1911", 0.3), hit(leaves, "Green", 0.3), hit(leaves, "receipt", 0.2)]
    packer = ContextPacker(store, 1000, order="source", reach=0, floor=0)
    documents = packer.run(QUESTION, hits, vector)["documents"]
    assert [document.meta[chunks.SOURCE_ID] for document in documents] == ["refunds", "refunds", "tea"]
    assert spans(documents)[:2] == sorted(spans(documents)[:2])


def test_the_best_evidence_comes_first_whatever_is_taken_around_it_later(store, leaves, vector):
    hits = [hit(leaves, "14 days"), hit(leaves, "Green tea")]
    cut = ContextPacker(store, 260, floor=0).run(QUESTION, hits, vector)["documents"]
    whole = ContextPacker(store, 260, floor=0, order="source").run(QUESTION, hits, vector)["documents"]
    assert "14 days" in cut[0].content
    assert len(cut[0].content) < len(whole[0].content)
    assert sorted("".join(document.content for document in cut)) == sorted("".join(one.content for one in whole))
    assert [one.score for one in cut] == sorted((one.score for one in cut), reverse=True)


def test_only_as_many_spans_as_wanted_are_returned(store, leaves, vector):
    hits = [hit(leaves, "1911"), hit(leaves, "Green"), hit(leaves, "receipt")]
    packer = ContextPacker(store, reach=0, floor=0, top_k=2)
    assert len(packer.run(QUESTION, hits, vector)["documents"]) == 2
    assert len(packer.run(QUESTION, hits, vector, top_k=1)["documents"]) == 1


@pytest.mark.parametrize("make", [edge_store_of, store_of])
def test_one_look_up_serves_all_hits(make, leaves, vector, tmp_path):
    counting = CountingStore(make(leaves, tmp_path) if make is edge_store_of else make(leaves))
    ContextPacker(counting).run(QUESTION, [hit(leaves, "14 days"), hit(leaves, "Green")], vector)
    assert len(counting.calls) == 1


def test_no_more_leaves_are_looked_at_than_the_pool_holds():
    tree = tree_of("".join(f"This is sentence {number}. " for number in range(5000)), block_sizes=[30_000, 8])
    [everything] = tree.parents
    store = store_of(tree.all)
    packer = ContextPacker(store, 10_000, pool_size=50, floor=0, reach=4, order="source")
    [result] = packer.run("sentence", [everything])["documents"]
    assert result.meta[chunks.LEAF_START] == 0
    assert result.meta[chunks.LEAF_END] == 50


def test_hits_may_be_blocks_windows_or_summaries():
    tree = tree_of(TEXTS["refunds"], block_sizes=[20, 8])
    store = store_of(tree.all)
    block = replace(tree.parent_of(tree.leaves[2]), score=0.7)
    window = SentenceWindowExpander(store).run(documents=[replace(tree.leaves[2], score=0.7)])["documents"][0]
    for found in (block, window, summary_of(block, "It is about money.")):
        documents = ContextPacker(store, 60).run(QUESTION, [found])["documents"]
        assert "Refunds" in documents[0].content
        assert documents[0].meta[chunks.EXPANDED_FROM]


def test_words_and_the_order_of_the_hits_decide_where_there_are_no_vectors(leaves, vector):
    bare = store_of([replace(leaf, embedding=None) for leaf in leaves])
    hits = [hit(leaves, "14 days"), hit(leaves, "Green")]
    for embedding in (None, vector):
        documents = ContextPacker(bare, 60).run("weir built", hits, embedding)["documents"]
        assert "weir was built in 1911" in documents[0].content
        assert ContextPacker(bare, 60, reach=0).run("", hits, embedding)["documents"][0].content == hits[0].content


@pytest.mark.parametrize("found", [None, [1.0, 0.0]])
def test_a_leaf_without_a_vector_does_not_hide_those_of_the_others(leaves, found):
    # No word of the question is in the texts, so only vectors can tell.
    question = "Which year saw that dam rise?"
    asked = QueryEmbedder().run(question)["embedding"]
    partly = store_of([replace(leaf, embedding=found) if "14 days" in leaf.content else leaf for leaf in leaves])
    [best] = ContextPacker(partly, 30).run(question, [hit(leaves, "14 days")], asked)["documents"]
    assert best.content == "Our weir was built in 1911. "


def test_a_vector_of_another_model_is_ignored_with_a_warning(store, leaves, caplog):
    documents = ContextPacker(store, 60).run("weir built", [hit(leaves, "14 days")], [1.0, 0.0])["documents"]
    assert "weir was built in 1911" in documents[0].content
    assert "2 dimensions, those of the index have 384" in caplog.text


def test_the_order_of_a_ranker_is_trusted_if_it_is_given_a_weight(store, leaves, vector):
    hits = [hit(leaves, "Green"), hit(leaves, "14 days")]
    plain, trusting = ContextPacker(store, 60), ContextPacker(store, 60, rank_weight=9)
    assert plain.run(QUESTION, hits, vector)["documents"][0].meta[chunks.SOURCE_ID] == "refunds"
    assert trusting.run(QUESTION, hits, vector)["documents"][0].meta[chunks.SOURCE_ID] == "tea"


def test_hits_without_a_place_follow_as_they_are_as_far_as_they_fit(store, leaves, vector):
    foreign = [Document(content="Foreign. " * 50, score=0.9), Document(content="Short.", score=0.1)]
    documents = ContextPacker(store, 100).run(QUESTION, [*foreign, hit(leaves, "14 days")], vector)["documents"]
    assert documents[-1] == foreign[1]
    assert foreign[0].id not in {document.id for document in documents}
    assert ContextPacker(store, 9000).run(QUESTION, foreign, vector)["documents"] == foreign


def test_missing_neighbours_are_skipped_and_told_once(leaves, vector, caplog):
    lonely = store_of([])
    found = hit(leaves, "14 days")
    with caplog.at_level(logging.WARNING):
        documents = ContextPacker(lonely).run(QUESTION, [found], vector)["documents"]
    assert [document.content for document in documents] == [found.content]
    assert len(caplog.records) == 1
    assert "does not hold the leaf" in caplog.text
    with pytest.raises(ValueError, match="does not hold the leaf"):
        ContextPacker(lonely, raise_on_failure=True).run(QUESTION, [found], vector)


def test_a_block_whose_leaves_are_gone_is_returned_as_it_is_and_marked(vector):
    tree = tree_of(TEXTS["refunds"], block_sizes=[20, 8])
    block = replace(tree.parents[0], score=0.7)
    [result] = ContextPacker(store_of([])).run(QUESTION, [block], vector)["documents"]
    assert (result.id, result.content) == (block.id, block.content)
    assert result.meta[chunks.MISSING] == chunks.leaf_ids(block.meta, chunks.leaf_range(block.meta))
    assert chunks.MISSING not in block.meta


def test_a_gap_in_the_store_parts_two_spans(leaves, vector):
    holed = store_of([leaf for leaf in leaves if "14 days" not in leaf.content])
    packer = ContextPacker(holed, 1000, floor=0)
    documents = packer.run(QUESTION, [hit(leaves, "receipt"), hit(leaves, "arrives")], vector)["documents"]
    assert "14 days" not in "".join(document.content for document in documents)
    for document in documents:
        start, end = chunks.span_of(document.meta)
        assert TEXTS["refunds"][start:end] == document.content


@pytest.mark.parametrize(("respect", "content"), [("leaf", "| Premium | 90 |\n\n"), ("table", "| Plan | Price |\n")])
def test_a_row_brings_the_header_of_its_table_if_that_is_respected(respect, content):
    tree = tree_of(PRICES, block_sizes=[40, 5])
    packer = ContextPacker(store_of(tree.all), 70, floor=1, respect=respect)
    documents = packer.run("premium", [replace(tree.leaves[0], score=0.5)])["documents"]
    assert any(document.content.startswith(content) for document in documents)
    assert "Basic" not in "".join(document.content for document in documents)


def test_a_sentence_brings_its_paragraph_if_that_is_respected(store, leaves):
    packer = ContextPacker(store, 500, floor=1, respect="paragraph")
    documents = packer.run("When was the weir built?", [hit(leaves, "receipt")])["documents"]
    assert documents[-1].content == "Our weir was built in 1911. It holds back the river. Moss grows on it."


@given(tree=trees(), data=st.data())
def test_whatever_is_hit_spans_are_exact_apart_and_within_the_budget(tree, data):
    hits = data.draw(st.lists(st.sampled_from(tree.all), unique_by=id, max_size=6)) if tree.all else []
    packer = ContextPacker(
        store_of(data.draw(st.lists(st.sampled_from(tree.leaves), unique_by=id)) if tree.leaves else []),
        data.draw(st.integers(1, 200)),
        length_unit=data.draw(st.sampled_from(["character", "word"])),
        reach=data.draw(st.integers(0, 4)),
        floor=data.draw(st.floats(0, 1)),
        respect=data.draw(st.sampled_from(["leaf", "paragraph", "table"])),
    )
    results = packer.run(data.draw(st.sampled_from(["", "a", "the first one"])), hits)["documents"]
    assert sum(length_of(result.content, packer.length_unit) for result in results) <= packer.max_length
    for result in results:
        start, end = chunks.span_of(result.meta)
        assert tree.text[start:end] == result.content
    fused = sorted(spans([result for result in results if chunks.MATCHED_SPANS in result.meta]))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(fused))


async def test_async_and_threads_give_the_same_and_inputs_stay_as_they_were(store, leaves, vector):
    hits = [hit(leaves, "14 days"), hit(leaves, "Green")]
    before = copy.deepcopy(hits)
    packer = ContextPacker(store)
    expected = packer.run(QUESTION, hits, vector)
    assert await packer.run_async(QUESTION, hits, vector) == expected
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: packer.run(QUESTION, hits, vector), range(8))) == [expected] * 8
    assert hits == before


def test_no_result_shares_metadata_with_a_stored_leaf(store, leaves, vector):
    packer = ContextPacker(store)
    for document in packer.run(QUESTION, [hit(leaves, "14 days")], vector)["documents"]:
        document.meta["team"] = "changed"
    again = packer.run(QUESTION, [hit(leaves, "14 days")], vector)["documents"]
    assert {document.meta["team"] for document in again} == {"desk"}


def test_it_works_in_a_pipeline(store, leaves):
    pipeline = Pipeline()
    pipeline.add_component("embedder", QueryEmbedder())
    pipeline.add_component("packer", ContextPacker(store, 110))
    pipeline.connect("embedder.embedding", "packer.query_embedding")
    data = {"embedder": {"text": QUESTION}, "packer": {"query": QUESTION, "documents": [hit(leaves, "14 days")]}}
    assert "14 days" in pipeline.run(data)["packer"]["documents"][0].content
