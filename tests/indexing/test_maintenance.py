from dataclasses import replace

import pytest
from haystack import Document
from haystack.components.embedders import MockDocumentEmbedder
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from index_states import sources_in, state_of, units_in
from killed_indexer import SectionTitles

from haystack_adv_retrieval import HierarchicalSplitter, QdrantEdgeDocumentStore
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.drift import tombstone
from haystack_adv_retrieval.indexing.documents import index_documents
from haystack_adv_retrieval.indexing.maintenance import IndexStatus, PruneReport, prune, status

TEXT = "# Refunds\n\nRefunds take 14 days. A receipt is needed.\n\n# Shipping\n\nShipping is free. It takes two days."


@pytest.fixture(params=["memory", "embedded"])
def store(request, memory_path):
    """An index of two sources, one of them in a namespace, with summaries and a document of someone else."""
    store = (
        InMemoryDocumentStore(shared=False) if request.param == "memory" else QdrantEdgeDocumentStore(str(memory_path))
    )
    store.write_documents([Document(id="foreign", content="Not ours.", meta={"unit": "leaf"})])
    index(store)
    index(store, namespace="red")
    yield store
    if hasattr(store, "close"):
        store.close()


def index(store, text=TEXT, **options):
    document = Document(content=text, meta={"source_id": "terms"})
    embedder = MockDocumentEmbedder(dimension=4)
    return index_documents(
        [document], store, embedder, HierarchicalSplitter([14, 6], **options), summarizer=SectionTitles()
    )


def of(store, source_id, unit):
    return [document for document in units_in(store, unit) if document.meta.get("source_id") == source_id]


def rewrite(store, document, **meta):
    written = replace(document, meta={key: value for key, value in (document.meta | meta).items() if value is not None})
    store.write_documents([written], policy=DuplicatePolicy.OVERWRITE)


def test_status_counts_what_is_there(store):
    found = status(store)
    per_source = {unit: len(of(store, "terms", unit)) for unit in ("leaf", "block", "summary")}
    assert per_source["leaf"] > per_source["block"] >= per_source["summary"] == 2
    assert found == IndexStatus(
        sources=2,
        versions=2,
        leaves=2 * per_source["leaf"],
        parents=2 * per_source["block"],
        summaries=4,
        last_indexed=max(record.meta[chunks.INDEXED_AT] for record in units_in(store, "source")),
        namespaces={"": 1, "red": 1},
        embedding_models={"mock-model": 2},
    )
    assert not found.drift
    assert status(store, namespace="red").sources == 1


def test_an_empty_index_is_in_order():
    empty = InMemoryDocumentStore(shared=False)
    assert status(empty) == IndexStatus()
    assert prune(empty) == PruneReport()


def test_an_index_in_order_is_left_alone(store):
    before = state_of(store)
    assert prune(store) == PruneReport()
    assert state_of(store) == before


def test_chunks_of_another_version_are_stale_and_pruned(store):
    before = state_of(store)
    old = HierarchicalSplitter([14, 6]).run(
        documents=[Document(content="Old text.", meta={"source_id": "red::terms", "namespace": "red"})]
    )
    leftovers = [*old["documents"], *old["parents"]]
    store.write_documents(leftovers)
    found = status(store)
    assert (found.stale, found.versions, found.drift) == (len(leftovers), 3, True)
    assert prune(store) == PruneReport(chunks_deleted=len(leftovers))
    assert state_of(store) == before


def test_chunks_without_a_source_record_are_pruned_but_not_those_of_others(store):
    store.delete_documents([chunks.source_record_id("red::terms")])
    count = status(store).stale
    assert count > 0
    assert prune(store) == PruneReport(chunks_deleted=count)
    assert sources_in(store) == ["terms"]
    assert store.filter_documents({"field": "id", "operator": "==", "value": "foreign"})


def test_an_unfinished_source_without_a_version_is_deleted_altogether(store):
    record = of(store, "terms", "source")[0]
    store.write_documents([replace(record, meta=tombstone(record.meta))], policy=DuplicatePolicy.OVERWRITE)
    found = status(store)
    assert (found.sources, found.unfinished) == (1, ["terms"])
    report = prune(store)
    assert report.sources_deleted == ["terms"]
    assert report.chunks_deleted > 0
    assert prune(store) == PruneReport()
    assert sources_in(store) == ["red::terms"]


def test_an_interrupted_source_that_is_whole_is_settled(store):
    before = state_of(store)
    rewrite(store, of(store, "terms", "source")[0], **{chunks.PENDING: True})
    assert status(store).unfinished == ["terms"]
    assert prune(store) == PruneReport(sources_settled=["terms"])
    assert state_of(store) == before


def test_a_source_whose_embeddings_were_being_replaced_has_to_be_indexed_again(store):
    before = state_of(store)
    rewrite(store, of(store, "terms", "source")[0], **{chunks.PENDING: True, chunks.EMBEDDING_MODEL: None})
    for _ in range(2):
        assert prune(store) == PruneReport(sources_damaged=["terms"])
    report = index(store)
    assert (report.updated, report.leaves_reused) == (1, 0)
    assert state_of(store) == before


@pytest.mark.parametrize("unit", ["block", "leaf", "summary"])
def test_a_source_that_lacks_something_is_damaged_until_it_is_indexed_again(store, unit):
    before = state_of(store)
    store.delete_documents([of(store, "terms", unit)[0].id])
    found = status(store)
    assert (found.damaged, found.stale) == (["terms"], 0)
    report = prune(store)
    assert report.sources_damaged == ["terms"]
    assert (report.chunks_deleted > 0) == (unit == "block")
    present = {document.id for document in store.filter_documents()}
    for leaf in of(store, "terms", "leaf"):
        assert leaf.meta[chunks.PARENT_ID] in present
    report = index(store)
    assert report.updated == 1
    assert report.leaves_embedded <= 3
    assert state_of(store) == before


def test_a_chunk_too_many_is_pruned(store):
    before = state_of(store)
    leaf = of(store, "terms", "leaf")[0]
    store.write_documents([replace(leaf, id="stray", meta=leaf.meta | {chunks.SPLIT_ID: 99})])
    assert status(store).damaged == ["terms"]
    assert prune(store).chunks_deleted == 1
    assert state_of(store) == before
    assert prune(store) == PruneReport()


def test_pruning_a_namespace_leaves_others_alone(store):
    for source_id in ("terms", "red::terms"):
        rewrite(store, of(store, source_id, "source")[0], **{chunks.PENDING: True})
    assert prune(store, namespace="red").sources_settled == ["red::terms"]
    assert status(store).unfinished == ["terms"]


def test_after_a_crash_it_is_enough_to_look_at_the_unfinished_sources(store):
    before = state_of(store)
    leftovers = HierarchicalSplitter([14, 6]).run(
        documents=[Document(content="Newer text.", meta={"source_id": name}) for name in ("terms", "never finished")]
    )
    store.write_documents([*leftovers["parents"], *leftovers["documents"]])
    assert prune(store, unfinished_only=True) == PruneReport()
    rewrite(store, of(store, "terms", "source")[0], **{chunks.PENDING: True})
    store.write_documents([replace(record, meta=tombstone(record.meta)) for record in leftovers["sources"][1:]])
    report = prune(store, unfinished_only=True)
    assert (report.sources_settled, report.sources_deleted) == (["terms"], ["never finished"])
    assert state_of(store) == before
    assert prune(store, unfinished_only=True) == PruneReport()


def test_what_an_interrupted_run_left_is_cleared_by_the_next_one_on_the_source(store):
    before = state_of(store)
    leftovers = HierarchicalSplitter([14, 6]).run(
        documents=[Document(content="Newer text.", meta={"source_id": "terms"})]
    )
    store.write_documents([*leftovers["parents"], *leftovers["documents"]])
    rewrite(store, of(store, "terms", "source")[0], **{chunks.PENDING: True})
    report = index(store)
    assert (report.updated, report.skipped, report.leaves_embedded) == (1, 0, 0)
    assert state_of(store) == before
