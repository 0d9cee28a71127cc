import asyncio
from typing import Any

import pytest
from haystack import Document, Pipeline, component
from haystack.components.rankers import MetaFieldRanker
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy

from haystack_adv_retrieval import (
    HierarchicalSplitter,
    LeafEmbedder,
    ParentExpander,
    QdrantEdgeDocumentStore,
    QdrantEdgeRetriever,
    QueryEmbedder,
    RoutedRetriever,
    SectionSummarizer,
    SummaryRouter,
)
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.indexing.documents import index_documents


def unit(*units: str) -> dict[str, Any]:
    return {"field": "meta.unit", "operator": "in", "value": list(units)}


def part(name: str) -> dict[str, Any]:
    return {"field": "meta.part", "operator": "==", "value": name}


@component
class Ranked:
    """Finds documents in a given order, those of a part or all, and notes what it was asked."""

    def __init__(self, parts: list[str]) -> None:
        self.parts = parts
        self.asked: list[Any] = []
        self.lifecycle: list[str] = []

    def warm_up(self) -> None:
        self.lifecycle.append("warm_up")

    def close(self) -> None:
        self.lifecycle.append("close")

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int = 4) -> dict[str, list[Document]]:
        self.asked.append((query, filters))
        if query == "fail" and filters:
            raise ConnectionError("no answer")
        wanted = filters["value"] if filters else None
        ids = [(f"{each}{place}", each) for place, each in enumerate(self.parts) if wanted in (None, each)]
        return {
            "documents": [
                Document(id=name, content=name, score=1 - place / 100) for place, (name, _) in enumerate(ids[:top_k])
            ]
        }


def ids(result: dict[str, Any]) -> list[str]:
    return [document.id for document in result["documents"]]


@pytest.mark.parametrize("safety_net", [-0.1, 1, 1.5])
def test_a_wrong_safety_net_is_refused_by_name_and_value(safety_net: float) -> None:
    with pytest.raises(ValueError, match=rf"safety_net must be in \[0, 1\), got {safety_net}"):
        RoutedRetriever(Ranked([]), safety_net)


@pytest.mark.parametrize("retriever", [None, MetaFieldRanker("year"), InMemoryDocumentStore()])
def test_what_cannot_be_filtered_is_refused(retriever: Any) -> None:
    with pytest.raises(ValueError, match="retriever needs an input `filters`"):
        RoutedRetriever(retriever)


def test_every_option_survives_yaml_with_the_retriever_inside() -> None:
    pipeline = Pipeline()
    store = InMemoryDocumentStore(index="routed")
    pipeline.add_component("it", RoutedRetriever(InMemoryBM25Retriever(store, top_k=7), safety_net=0.45))
    loaded: Any = Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_adv_retrieval"])
    assert loaded.dumps() == pipeline.dumps()
    again = loaded.get_component("it")
    assert (again.safety_net, again.retriever.top_k) == (0.45, 7)
    store.write_documents([Document(content="late kites")], policy=DuplicatePolicy.OVERWRITE)
    assert len(loaded.run({"it": {"query": "kites"}})["it"]["documents"]) == 1


def test_an_empty_store_has_no_details() -> None:
    assert RoutedRetriever(Ranked([])).run(query="q", filters=part("a")) == {"documents": []}


def test_a_share_of_any_number_of_results_is_from_the_whole_index() -> None:
    retriever = RoutedRetriever(Ranked(["b"] * 20 + ["a"] * 20), safety_net=0.3)
    for top_k in (4, 10, 20):
        found = ids(retriever.run(query="q", filters=part("a"), top_k=top_k))
        assert len(found) == top_k
        assert sum(name.startswith("b") for name in found) == pytest.approx(0.3 * top_k, abs=1)
        assert found.index("b0") < 4
        assert [name for name in found if name[0] == "a"] == [f"a{n}" for n in range(20, 40)][
            : top_k - sum(name.startswith("b") for name in found)
        ]


@pytest.mark.parametrize("safety_net", [0.1, 0.3, 0.5, 0.9])
def test_what_both_searches_find_comes_once_and_first(safety_net: float) -> None:
    result = RoutedRetriever(Ranked(["a", "b", "a", "b"]), safety_net).run(query="q", filters=part("a"))
    assert sorted(ids(result)) == ["a0", "a2", "b1", "b3"]
    assert ids(result)[0] == "a0"
    scores = [document.score for document in result["documents"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1.0)


def test_without_a_net_only_the_route_counts() -> None:
    inner = Ranked(["b", "a", "b", "a"])
    result = RoutedRetriever(inner, 0.0).run(query="q", filters=part("a"), unrouted_filters=None)
    assert (ids(result), inner.asked) == (["a1", "a3"], [("q", part("a"))])
    assert result["documents"][0].score == 1.0


@pytest.mark.parametrize("filters", [None, {}, part("a")])
def test_where_there_is_no_route_one_search_is_enough(filters: Any) -> None:
    inner = Ranked(["b", "a"])
    RoutedRetriever(inner).run(query="q", filters=filters, unrouted_filters=filters)
    assert inner.asked == [("q", filters or None)]


def test_the_users_filter_holds_for_the_net_too() -> None:
    inner = Ranked(["b", "a", "c"])
    RoutedRetriever(inner).run(query="q", filters=part("a"), unrouted_filters=part("c"))
    assert sorted(inner.asked, key=str) == [("q", part("a")), ("q", part("c"))]


def test_errors_of_the_retriever_are_its_errors() -> None:
    with pytest.raises(ConnectionError):
        RoutedRetriever(Ranked(["a"])).run(query="fail", filters=part("a"))
    with pytest.raises(ConnectionError):
        asyncio.run(RoutedRetriever(Ranked(["a"])).run_async(query="fail", filters=part("a")))


def test_async_gives_the_same_with_and_without_an_async_retriever() -> None:
    for inner, filters in ((Ranked(["b", "a", "b", "a"]), part("a")), (InMemoryBM25Retriever(memory()), part("a"))):
        retriever = RoutedRetriever(inner)
        arguments = {"query": "kites", "filters": filters, "unrouted_filters": None, "top_k": 3}
        assert asyncio.run(retriever.run_async(**arguments)) == retriever.run(**arguments)


def memory() -> InMemoryDocumentStore:
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(
        [Document(content="kites " * (number + 1), meta={"part": "ab"[number % 2]}) for number in range(6)]
    )
    return store


def test_it_has_the_inputs_of_its_retriever_in_a_pipeline() -> None:
    pipeline = Pipeline()
    pipeline.add_component("router", SummaryRouter())
    pipeline.add_component("retriever", RoutedRetriever(InMemoryBM25Retriever(memory())))
    for socket in ("filters", "unrouted_filters"):
        pipeline.connect(f"router.{socket}", f"retriever.{socket}")
    assert {"query", "top_k", "scale_score"} <= set(pipeline.inputs()["retriever"])
    data = {"router": {"documents": []}, "retriever": {"query": "kites"}}
    assert (
        pipeline.run(data)
        == asyncio.run(pipeline.run_async(data))
        == {
            "router": {"sections": []},
            "retriever": {"documents": []},
        }
    )


def test_warming_up_and_closing_reach_the_retriever() -> None:
    inner = Ranked([])
    retriever = RoutedRetriever(inner)
    retriever.warm_up()
    asyncio.run(retriever.warm_up_async())
    retriever.close()
    asyncio.run(retriever.close_async())
    assert inner.lifecycle == ["warm_up", "warm_up", "close", "close"]


# --- over a real index ---

TOPICS = {
    "Refunds": "The money goes back to the card within fourteen days. A receipt is needed for every return.",
    "Shipping": "Parcels leave the warehouse at noon. Islands wait two days longer for their parcels.",
    "Security": "Passwords have sixteen characters. A lost badge is reported to the front desk.",
    "Canteen": "Soup is served on Tuesdays. The kitchen closes when the last guest has left.",
    "Travel": "Trains are booked by the office. Flights need the consent of a director.",
    "Holidays": "Everyone has thirty days off a year. Days that are left over expire in March.",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = QdrantEdgeDocumentStore(str(tmp_path_factory.mktemp("routed")))
    text = "".join(f"# {topic}\n\n{sentences}\n\n" for topic, sentences in TOPICS.items())
    index_documents(
        [Document(content=text, meta={"source_id": name, "site": name}) for name in ("north", "south")],
        made,
        LeafEmbedder(),
        HierarchicalSplitter([24, 12], leaf="sentence"),
        summarizer=SectionSummarizer(document_store=made),
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def ask(store: Any) -> Any:
    embedder = QueryEmbedder()

    def search(question: str, misled_by: list[Document] | None = None, **options: Any) -> tuple[dict, list[Document]]:
        query = {"query": question, "query_embedding": embedder.run(text=question)["embedding"]}
        filters = options.pop("filters", None)
        top_k = options.pop("top_k", 2)
        hits = QdrantEdgeRetriever(store, filters=unit("summary")).run(**query, filters=filters)["documents"]
        route = SummaryRouter(top_k).run(hits if misled_by is None else misled_by, filters)
        inner = QdrantEdgeRetriever(store, top_k=options.pop("details", 8), filters=unit("leaf"))
        details = RoutedRetriever(inner, **options).run(
            **query, filters=route["filters"], unrouted_filters=route["unrouted_filters"]
        )
        return route, details["documents"]

    return search


QUESTION = "How many characters does a password have?"
ANSWER = "Passwords have sixteen characters."


def test_summaries_lead_to_the_details_and_are_none(ask: Any) -> None:
    route, details = ask(QUESTION)
    assert "Passwords" in route["sections"][0].content
    assert ANSWER in details[0].content
    assert {detail.meta[chunks.UNIT] for detail in details} == {"leaf"}
    routed = {section.meta[chunks.PARENT_ID] for section in route["sections"]}
    _, inside = ask(QUESTION, safety_net=0.0)
    assert {detail.meta[chunks.PARENT_ID] for detail in inside} == routed


def test_the_net_finds_the_detail_when_all_summaries_mislead(ask: Any, store: Any) -> None:
    elsewhere = [
        summary for summary in store.filter_documents(unit("summary")) if "Security" not in summary.meta["headings"]
    ]
    _, none = ask(QUESTION, elsewhere, top_k=10, safety_net=0.0)
    assert none
    assert not any(ANSWER in detail.content for detail in none)
    for details in (4, 8, 20):
        _, found = ask(QUESTION, elsewhere, top_k=10, details=details)
        assert any(ANSWER in detail.content for detail in found[:4])


def test_the_users_filter_holds_on_the_way_and_beside_it(ask: Any) -> None:
    south = {"field": "meta.site", "operator": "==", "value": "south"}
    route, details = ask(QUESTION, filters=south)
    assert details
    assert {found.meta["site"] for found in (*route["sections"], *details)} == {"south"}
    assert ANSWER in details[0].content


def test_a_summary_that_is_found_becomes_its_section(ask: Any, store: Any) -> None:
    route, _ = ask(QUESTION)
    expanded = ParentExpander(store).run(route["sections"])["documents"]
    assert expanded[0].id == route["sections"][0].meta[chunks.PARENT_ID]
    assert expanded[0].meta[chunks.UNIT] == "block"
    assert expanded[0].content.strip() == f"# Security\n\n{TOPICS['Security']}"


def test_everything_can_be_searched_at_once_and_collapses_to_sections(store: Any) -> None:
    query = {"query": QUESTION, "query_embedding": QueryEmbedder().run(text=QUESTION)["embedding"]}
    retriever = QdrantEdgeRetriever(store, top_k=12, filters=unit("leaf", "summary"))
    hits = retriever.run(**query)["documents"]
    assert {hit.meta[chunks.UNIT] for hit in hits} == {"leaf", "summary"}
    sections = ParentExpander(store).run(hits)["documents"]
    assert len({section.id for section in sections}) == len(sections) < len(hits)
    assert {section.meta[chunks.UNIT] for section in sections} == {"block"}
    assert ANSWER in sections[0].content
    both = {hit.meta[chunks.UNIT] for hit in hits if hit.id in sections[0].meta[chunks.EXPANDED_FROM]}
    assert both == {"leaf", "summary"}
