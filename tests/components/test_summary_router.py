import asyncio
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.components.embedders import MockDocumentEmbedder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore
from hypothesis import given
from hypothesis import strategies as st
from trees import summary_of, through_yaml, tree_of

from haystack_adv_retrieval import HierarchicalSplitter, QdrantEdgeDocumentStore, SummaryRouter
from haystack_adv_retrieval.core import chunks

LEAF_FILTER = {"field": "meta.unit", "operator": "==", "value": "leaf"}
LEGAL = {"field": "meta.kind", "operator": "==", "value": "legal"}
TEXT = "".join(
    f"# Part {part}\n\n" + "".join(f"Point {part}{point} is made here at some length. " for point in "abcd") + "\n\n"
    for part in range(4)
)


def summaries_of(sections: list[Document]) -> list[Document]:
    """Summaries with falling scores, as a search would find them."""
    return [
        replace(summary_of(section, f"summary {place}"), score=0.9 - place / 10)
        for place, section in enumerate(sections)
    ]


def sections_of(result: dict[str, Any]) -> list[str]:
    return [section.meta[chunks.PARENT_ID] for section in result["sections"]]


def indexed(sizes: list[int]) -> tuple[list[Document], dict[int, list[Document]]]:
    """Two sources of all kinds of chunks, and their sections by level, with the summaries among the chunks."""
    documents = [Document(content=TEXT, meta={"source_id": kind, "kind": kind}) for kind in ("legal", "other")]
    split = HierarchicalSplitter(sizes, leaf="sentence").run(documents=documents)
    by_level: dict[int, list[Document]] = {}
    for parent in split["parents"]:
        by_level.setdefault(parent.meta[chunks.LEVEL], []).append(parent)
    everything = [*split["documents"], *split["parents"], *split["sources"]]
    everything += [summary for sections in by_level.values() for summary in summaries_of(sections)]
    return MockDocumentEmbedder(dimension=2).run([replace(each, score=None) for each in everything])[
        "documents"
    ], by_level


@pytest.fixture(params=["in_memory", "qdrant_edge", "qdrant"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    opened = []

    def make(documents: list[Document]) -> Any:
        kinds = {
            "in_memory": lambda: InMemoryDocumentStore(shared=False),
            "qdrant_edge": lambda: QdrantEdgeDocumentStore(str(tmp_path)),
            "qdrant": lambda: QdrantDocumentStore(":memory:", embedding_dim=2, wait_result_from_api=True),
        }
        opened.append(kinds[request.param]())
        opened[0].write_documents(documents)
        return opened[0]

    yield make
    for store in opened:
        if hasattr(store, "close"):
            store.close()


@pytest.mark.parametrize("top_k", [0, -1, True, 1.5])
def test_wrong_parameters_are_refused_by_name_and_value(top_k: Any) -> None:
    with pytest.raises(ValueError, match=f"top_k must be a whole number of at least 1, got {top_k}"):
        SummaryRouter(top_k)
    with pytest.raises(ValueError, match="top_k"):
        SummaryRouter().run([], top_k=top_k)


def test_every_option_survives_yaml() -> None:
    loaded = through_yaml(SummaryRouter(3, min_score=0.25))
    assert (loaded.top_k, loaded.min_score) == (3, 0.25)


@pytest.mark.parametrize("documents", [[], [Document(content="a leaf", meta={"unit": "leaf"}, score=1.0)]])
def test_without_summaries_all_leaves_are_searched_with_a_warning(
    documents: list[Document], caplog: pytest.LogCaptureFixture
) -> None:
    assert SummaryRouter().run(documents) == {"filters": LEAF_FILTER, "unrouted_filters": LEAF_FILTER, "sections": []}
    assert len(caplog.records) == 1
    wanted = {"operator": "AND", "conditions": [LEAF_FILTER, LEGAL]}
    assert SummaryRouter().run(documents, LEGAL) == {
        "filters": wanted,
        "unrouted_filters": wanted,
        "sections": [],
    }


def test_the_best_sections_count_once_whatever_the_order_of_the_hits() -> None:
    hits = summaries_of(tree_of(TEXT).level(1))
    again = [replace(hit, id=hit.id + "again", score=hit.score - 0.05) for hit in hits]
    result = SummaryRouter(top_k=3).run([*again, *hits[::-1]])
    assert result["sections"] == hits[:3]
    assert sections_of(SummaryRouter().run(hits, top_k=2)) == sections_of(result)[:2]


def test_a_low_score_leads_nowhere() -> None:
    hits = summaries_of(tree_of(TEXT).level(1))
    assert len(SummaryRouter(min_score=0.8).run(hits)["sections"]) == 2
    assert SummaryRouter(min_score=0.0).run([replace(hits[0], score=None)])["sections"] == []
    assert SummaryRouter().run([replace(hits[0], score=None)])["sections"]


def test_what_it_is_given_stays_as_it_is() -> None:
    hits, filters = summaries_of(tree_of(TEXT).level(1)), copy.deepcopy(LEGAL)
    before = copy.deepcopy(hits)
    SummaryRouter().run(hits, filters)
    assert (hits, filters) == (before, LEGAL)


@pytest.mark.parametrize(
    ("sizes", "level"), [([40, 12], 1), ([80, 40, 12], 1), ([80, 40, 12], 2), ([150, 80, 40, 12], 2)]
)
def test_the_route_holds_the_leaves_of_its_sections_in_every_store(
    make_store: Any, sizes: list[int], level: int
) -> None:
    everything, by_level = indexed(sizes)
    store = make_store(everything)
    chosen = by_level[level][::2]
    for sections in (chosen[:1], chosen):
        result = SummaryRouter(top_k=99).run(summaries_of(sections))
        inside = {
            leaf.id
            for section in sections
            for leaf in everything
            if leaf.meta[chunks.UNIT] == "leaf"
            and leaf.meta[chunks.SOURCE_ID] == section.meta[chunks.SOURCE_ID]
            and section.meta[chunks.START] <= leaf.meta[chunks.START] < section.meta[chunks.END]
        }
        assert inside
        assert {found.id for found in store.filter_documents(result["filters"])} == inside

        legal = SummaryRouter(top_k=99).run(summaries_of(sections), LEGAL)
        found = {found.id: found for found in store.filter_documents(legal["filters"])}
        assert set(found) == {leaf.id for leaf in everything if leaf.id in inside and leaf.meta["kind"] == "legal"}
        unrouted = store.filter_documents(legal["unrouted_filters"])
        assert {(leaf.meta[chunks.UNIT], leaf.meta["kind"]) for leaf in unrouted} == {("leaf", "legal")}


def test_sections_of_several_levels_share_a_route(make_store: Any) -> None:
    everything, by_level = indexed([80, 40, 12])
    store = make_store(everything)
    coarse, fine = by_level[1][0], by_level[2][-1]
    result = SummaryRouter().run(summaries_of([coarse, fine]))
    found = {leaf.id for leaf in store.filter_documents(result["filters"])}
    assert found == {
        leaf_id
        for section in (coarse, fine)
        for leaf_id in chunks.leaf_ids(section.meta, chunks.leaf_range(section.meta) or ())
    }


def test_a_users_or_does_not_loosen_the_route(make_store: Any) -> None:
    everything, by_level = indexed([40, 12])
    store = make_store(everything)
    either = {"operator": "OR", "conditions": [LEGAL, {**LEGAL, "value": "other"}]}
    section = by_level[1][0]
    result = SummaryRouter().run(summaries_of([section]), either)
    parents = {leaf.meta[chunks.PARENT_ID] for leaf in store.filter_documents(result["filters"])}
    assert parents == {section.id}


@given(st.lists(st.sampled_from(summaries_of(tree_of(TEXT).level(1))), max_size=8), st.integers(1, 4))
def test_never_more_sections_than_asked_for_and_none_twice(hits: list[Document], top_k: int) -> None:
    sections = sections_of(SummaryRouter(top_k).run(hits))
    assert len(sections) == len(set(sections)) == min(top_k, len({hit.id for hit in hits}))


def test_async_gives_the_same() -> None:
    hits = summaries_of(tree_of(TEXT).level(1))
    router = SummaryRouter(2)
    assert asyncio.run(router.run_async(hits, LEGAL, 1)) == router.run(hits, LEGAL, 1)


def test_any_retriever_searches_behind_it_in_a_pipeline() -> None:
    store = InMemoryDocumentStore(shared=False)
    everything, by_level = indexed([40, 12])
    store.write_documents(everything)
    pipeline = Pipeline()
    pipeline.add_component("router", SummaryRouter(1))
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=50))
    pipeline.connect("router.filters", "retriever.filters")
    data = {"router": {"documents": summaries_of(by_level[1])}, "retriever": {"query": "point length"}}
    for result in (pipeline.run(data), asyncio.run(pipeline.run_async(data))):
        found = result["retriever"]["documents"]
        assert {leaf.meta[chunks.PARENT_ID] for leaf in found} == {by_level[1][0].id}
        assert len(found) >= 4
