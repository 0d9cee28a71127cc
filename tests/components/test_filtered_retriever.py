import asyncio
import logging

import pytest
from haystack import Document, Pipeline, component
from haystack.components.rankers import MetaFieldRanker
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever, InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_adv_retrieval.components.filtered_retriever import FilteredRetriever
from haystack_adv_retrieval.components.self_query_filter_builder import SelfQueryFilterBuilder


def year(operator, value):
    return {"field": "meta.year", "operator": operator, "value": value}


DOCUMENTS = [
    Document(
        content=f"kites {'kites ' * number}",
        meta={"year": 2020 + number, "tenant": "ab"[number % 2]},
        embedding=[1.0, number],
    )
    for number in range(6)
]
NEVER, LATE, FROM_2023 = year(">", 2100), year(">=", 2025), year(">=", 2023)
MIXED = {"field": "meta.tenant", "operator": ">", "value": 3}  # the store refuses to compare text with numbers


@pytest.fixture
def store():
    store = InMemoryDocumentStore(index="filtered")
    store.delete_documents([document.id for document in store.filter_documents()])
    store.write_documents(DOCUMENTS)
    yield store
    store.shutdown()


def years(result):
    return [document.meta["year"] for document in result["documents"]]


def test_what_cannot_be_filtered_is_refused(store):
    for retriever in (MetaFieldRanker("year"), store, None):
        with pytest.raises(ValueError, match="filters"):
            FilteredRetriever(retriever)
    for min_results in (0, 1.5):
        with pytest.raises(ValueError, match=f"min_results must be .* got {min_results}"):
            FilteredRetriever(InMemoryBM25Retriever(store), min_results=min_results)


def test_a_filter_that_leaves_enough_is_kept(store):
    result = FilteredRetriever(InMemoryBM25Retriever(store)).run(query="kites", filters=LATE, relaxations=[{}])
    assert years(result) == [2025]
    assert result["report"] == {
        "filters": LATE,
        "relaxed": 0,
        "attempts": [{"filters": LATE, "found": 1, "error": None}],
    }


def test_it_is_relaxed_until_there_is_enough_and_the_strict_hits_stay_in_front(store):
    retriever = FilteredRetriever(InMemoryBM25Retriever(store), min_results=2)
    until_2023 = year("<=", 2023)
    result = retriever.run(query="kites", filters=year("==", 2021), relaxations=[until_2023, {}])
    assert years(result) == [2021, 2023, 2022, 2020]
    assert result["report"]["relaxed"] == 1
    assert result["report"]["filters"] == until_2023


def test_there_are_never_more_documents_than_the_retriever_gives(store):
    retriever = FilteredRetriever(InMemoryBM25Retriever(store, top_k=3), min_results=3)
    result = retriever.run(query="kites", filters=year("<=", 2021), relaxations=[{}])
    assert len(result["documents"]) == 3
    assert set(years(result)[:2]) == {2020, 2021}


def test_without_relaxations_nothing_is_relaxed(store):
    assert FilteredRetriever(InMemoryBM25Retriever(store)).run(query="kites", filters=NEVER)["documents"] == []
    assert len(FilteredRetriever(InMemoryBM25Retriever(store)).run(query="kites")["documents"]) == 6


def test_a_refused_filter_is_relaxed_with_a_warning(store, caplog):
    retriever = FilteredRetriever(InMemoryBM25Retriever(store))
    with caplog.at_level(logging.WARNING):
        result = retriever.run(query="kites", filters=MIXED, relaxations=[NEVER, LATE])
    assert years(result) == [2025]
    assert [attempt["found"] for attempt in result["report"]["attempts"]] == [None, 0, 1]
    assert result["report"]["attempts"][0]["error"]
    assert len(caplog.records) == 1


def test_it_raises_if_no_filter_works_or_if_told_to(store):
    with pytest.raises(Exception, match="compare"):
        FilteredRetriever(InMemoryBM25Retriever(store)).run(query="kites", filters=MIXED, relaxations=[MIXED])
    with pytest.raises(Exception, match="compare"):
        FilteredRetriever(InMemoryBM25Retriever(store), raise_on_failure=True).run(
            query="kites", filters=MIXED, relaxations=[{}]
        )


def test_an_error_at_the_end_does_not_cost_what_was_found(store):
    retriever = FilteredRetriever(InMemoryBM25Retriever(store), min_results=5)
    assert years(retriever.run(query="kites", filters=LATE, relaxations=[MIXED])) == [2025]


def test_the_builder_decides_what_is_never_relaxed(store):
    tenant = {"field": "meta.tenant", "operator": "==", "value": "a"}
    fields = [{"name": "year", "type": "int", "unit": "year"}]
    built = SelfQueryFilterBuilder(fields, method="rules", base_filters=tenant).run(query="kites after 2100")
    result = FilteredRetriever(InMemoryBM25Retriever(store)).run(
        query=built["query"], filters=built["filters"], relaxations=built["relaxations"]
    )
    assert sorted(years(result)) == [2020, 2022, 2024]
    assert result["report"]["relaxed"] == 1


async def test_async_gives_the_same_with_and_without_an_async_retriever(store):
    @component
    class SyncOnly:
        @component.output_types(documents=list[Document])
        def run(self, query: str, filters: dict | None = None):
            return InMemoryBM25Retriever(store).run(query=query, filters=filters)

    for inner in (InMemoryBM25Retriever(store), SyncOnly()):
        retriever = FilteredRetriever(inner)
        arguments = {"query": "kites", "filters": NEVER, "relaxations": [LATE]}
        assert years(await retriever.run_async(**arguments)) == years(retriever.run(**arguments)) == [2025]


def test_it_has_the_inputs_of_its_retriever_in_a_pipeline_and_through_yaml(store):
    fields = [{"name": "year", "type": "int", "unit": "year"}]
    pipeline = Pipeline()
    pipeline.add_component("builder", SelfQueryFilterBuilder(fields, method="rules"))
    pipeline.add_component("retriever", FilteredRetriever(InMemoryBM25Retriever(store), min_results=2))
    for socket in ("query", "filters", "relaxations"):
        pipeline.connect(f"builder.{socket}", f"retriever.{socket}")
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_adv_retrieval"])
    assert again.dumps() == pipeline.dumps()
    data = {"builder": {"query": "kites in 2025"}, "retriever": {"top_k": 2}}
    for result in (again.run(data), asyncio.run(again.run_async(data))):
        assert years(result["retriever"])[0] == 2025
        assert len(result["retriever"]["documents"]) == 2
    again.get_component("retriever").retriever.document_store.shutdown()
    by_embedding = Pipeline()
    by_embedding.add_component("retriever", FilteredRetriever(InMemoryEmbeddingRetriever(store)))
    result = by_embedding.run(
        {"retriever": {"query_embedding": [0.0, 1.0], "filters": NEVER, "relaxations": [FROM_2023]}}
    )
    assert years(result["retriever"])[0] == 2025


def test_warming_up_and_closing_reach_the_retriever():
    calls = []

    @component
    class Inner:
        def warm_up(self):
            calls.append("warm_up")

        async def close_async(self):
            calls.append("close_async")

        def close(self):
            calls.append("close")

        @component.output_types(documents=list[Document])
        def run(self, filters: dict | None = None):
            return {"documents": [], "filters": filters}

    retriever = FilteredRetriever(Inner())
    retriever.warm_up()
    asyncio.run(retriever.warm_up_async())
    retriever.close()
    asyncio.run(retriever.close_async())
    assert calls == ["warm_up", "warm_up", "close", "close_async"]
    assert retriever.run()["documents"] == []
