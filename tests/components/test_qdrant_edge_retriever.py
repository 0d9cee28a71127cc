"""The retriever of the embedded store."""

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_adv_retrieval.components.qdrant_edge_retriever import QdrantEdgeRetriever
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore

DOCUMENTS = [
    Document(id="both", content="refund of refund", meta={"team": "sales", "year": 2024}, embedding=[1.0, 0.0]),
    Document(id="near", content="money back", meta={"team": "sales", "year": 2020}, embedding=[0.9, 0.1]),
    Document(id="word", content="refund of deposits", meta={"team": "legal", "year": 2024}, embedding=[0.0, 1.0]),
    Document(id="parent", content="refund chapter", meta={"team": "legal", "year": 2024}),
]
SALES = {"field": "meta.team", "operator": "==", "value": "sales"}
LEGAL = {"field": "meta.team", "operator": "==", "value": "legal"}
LATE = {"field": "meta.year", "operator": ">=", "value": 2024}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = QdrantEdgeDocumentStore(str(tmp_path_factory.mktemp("index")))
    store.write_documents(DOCUMENTS)
    yield store
    store.close()


def ids(result):
    return [document.id for document in result["documents"]]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mode": "sparse"}, "mode must be one of"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1, got 0"),
        ({"candidates": -1}, "candidates must be a whole number of at least 1, got -1"),
    ],
)
def test_parameters_out_of_range_are_refused(store, parameters, message):
    with pytest.raises(ValueError, match=message):
        QdrantEdgeRetriever(store, **parameters)


def test_another_kind_of_store_is_refused():
    with pytest.raises(ValueError, match="document_store must be a QdrantEdgeDocumentStore"):
        QdrantEdgeRetriever(InMemoryDocumentStore())


def test_dense_mode_ranks_by_similarity(store):
    documents = QdrantEdgeRetriever(store, "dense").run("refund", [1.0, 0.0])["documents"]
    assert [document.id for document in documents] == ["both", "near", "word"]
    assert documents[0].score == pytest.approx(1.0)
    assert documents[2].score == pytest.approx(0.0, abs=1e-6)


def test_bm25_mode_ranks_by_words_and_finds_what_has_no_embedding(store):
    result = QdrantEdgeRetriever(store, "bm25").run("refund chapter", [1.0, 0.0])
    assert ids(result)[0] == "parent"
    assert sorted(ids(result)) == ["both", "parent", "word"]
    scores = [document.score for document in result["documents"]]
    assert scores == sorted(scores, reverse=True)


def test_hybrid_mode_fuses_both_and_takes_what_it_is_given(store):
    hybrid = QdrantEdgeRetriever(store)
    fused = hybrid.run("refund", [1.0, 0.0])
    assert ids(fused)[0] == "both"
    assert sorted(ids(fused)) == ["both", "near", "parent", "word"]
    assert ids(hybrid.run(query="refund")) == ids(QdrantEdgeRetriever(store, "bm25").run("refund"))
    dense = QdrantEdgeRetriever(store, "dense").run(query_embedding=[1.0, 0.0])
    assert hybrid.run(query="", query_embedding=[1.0, 0.0]) == dense


def test_few_candidates_still_fill_top_k(store):
    assert len(ids(QdrantEdgeRetriever(store, top_k=4, candidates=1).run("refund", [1.0, 0.0]))) == 4


@pytest.mark.parametrize(
    ("mode", "given", "message"),
    [
        ("bm25", {"query_embedding": [1.0, 0.0]}, "query must be a non-empty string in mode 'bm25'"),
        ("bm25", {"query": ""}, "query must be a non-empty string in mode 'bm25'"),
        ("dense", {"query": "refund"}, "query_embedding must be given in mode 'dense'"),
        ("dense", {"query_embedding": []}, "query_embedding must be given in mode 'dense'"),
        ("hybrid", {}, "query or query_embedding must be given in mode 'hybrid'"),
        ("hybrid", {"query": "refund", "top_k": 0}, "top_k must be a whole number of at least 1, got 0"),
    ],
)
def test_a_missing_input_is_named(store, mode, given, message):
    with pytest.raises(ValueError, match=message):
        QdrantEdgeRetriever(store, mode).run(**given)


@pytest.mark.parametrize("mode", ["hybrid", "dense", "bm25"])
@pytest.mark.parametrize(
    ("at_run", "found"),
    [
        (None, {"both", "near"}),
        ({}, {"both", "near"}),
        (LATE, {"both"}),
        (LEGAL, set()),
        ({"operator": "OR", "conditions": [SALES, LEGAL]}, {"both", "near"}),
        ({"operator": "NOT", "conditions": [SALES]}, set()),
    ],
)
def test_a_filter_given_at_init_is_only_ever_narrowed(store, mode, at_run, found):
    retriever = QdrantEdgeRetriever(store, mode, filters=SALES)
    result = retriever.run("refund money", [1.0, 0.0], filters=at_run)
    assert set(ids(result)) == found
    assert retriever.filters == SALES


def test_embeddings_are_returned_on_demand(store):
    assert QdrantEdgeRetriever(store).run("refund", [1.0, 0.0])["documents"][0].embedding is None
    hits = QdrantEdgeRetriever(store, return_embedding=True).run("refund chapter", [1.0, 0.0])["documents"]
    assert {hit.id: hit.embedding for hit in hits} == {document.id: document.embedding for document in DOCUMENTS}


def test_run_arguments_override_those_of_init(store):
    retriever = QdrantEdgeRetriever(store, top_k=1)
    assert len(ids(retriever.run("refund"))) == 1
    assert len(ids(retriever.run("refund", top_k=3))) == 3


async def test_async_gives_the_same(store):
    retriever = QdrantEdgeRetriever(store, filters=LATE)
    assert await retriever.run_async("refund", [1.0, 0.0], top_k=2) == retriever.run("refund", [1.0, 0.0], top_k=2)


async def test_it_works_in_pipelines_that_were_loaded_from_yaml(store):
    pipeline = Pipeline()
    pipeline.add_component("first", QdrantEdgeRetriever(store, "bm25", 2, filters=LATE))
    pipeline.add_component("second", QdrantEdgeRetriever(store, candidates=7, return_embedding=True))
    yaml = pipeline.dumps()
    loaded = Pipeline.loads(yaml, allowed_modules=["haystack_adv_retrieval"])
    assert loaded.dumps() == yaml
    inputs = {"first": {"query": "refund"}, "second": {"query": "refund", "query_embedding": [1.0, 0.0]}}
    result = loaded.run(inputs)
    assert len(ids(result["first"])) == 2
    assert ids(result["second"])[0] == "both"
    assert await loaded.run_async(inputs) == result
