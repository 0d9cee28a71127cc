"""Indexing as one call: split, compare with the index, embed what is new, write, delete what is gone."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from haystack import Document
from haystack.components.embedders.types import DocumentEmbedder
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.components.hierarchical_splitter import HierarchicalSplitter
from haystack_adv_retrieval.components.index_writer import IndexWriter
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.indexing.run import IndexReport, IndexRun, Progress
from haystack_adv_retrieval.stores import exclusive, read_by_ids

__all__ = ["IndexReport", "delete_sources", "index_documents", "index_documents_async"]


def index_documents(
    documents: Iterable[Document],
    document_store: DocumentStore,
    embedder: DocumentEmbedder,
    splitter: HierarchicalSplitter,
    *,
    summarizer: Any = None,
    embedding_model: str | None = None,
    reembed: bool = False,
    delete_missing: bool = False,
    scope: Sequence[str] | None = None,
    keep: Collection[str] = (),
    progress: Progress | None = None,
    raise_on_failure: bool = False,
) -> IndexReport:
    """
    Bring an index in step with documents.

    What is in the index as it is costs nothing; of a changed source only leaves whose text is new are embedded. The run
    may be killed at any point: queries go on to see whole trees, and the next run ends where this one would have.
    Documents are read as they are needed, so memory does not grow with their number. Runs on one index take turns
    within a process; see `IndexWriter` for other processes.

    ```python
    from haystack import Document
    from haystack.components.embedders import MockDocumentEmbedder
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import HierarchicalSplitter, index_documents

    terms = Document(content="Refunds take 14 days.", meta={"source_id": "terms"})
    print(index_documents([terms], InMemoryDocumentStore(), MockDocumentEmbedder(), HierarchicalSplitter()))
    ```

    :param documents: The sources.
    :param document_store: The store of the index.
    :param embedder: Embeds the leaves.
    :param splitter: Splits the sources; its namespace is the one that the run is about.
    :param summarizer: Makes `summaries` out of `parents` and `documents` (the embedded leaves), such as
        `SectionSummarizer`; they are indexed with their source. A source counts as changed that has none yet, or none
        as the summarizer makes them now (by its attribute `settings`, if it has one).
    :param embedding_model: Name under which the index records the model. None: that of the embedder.
    :param reembed: Replace embeddings of another model, which are refused otherwise.
    :param delete_missing: After the last document, delete the sources in `scope` that were not among the documents.
    :param scope: The beginnings of the `source_id`s (without namespace) that `documents` is complete for, such as
        `"/data/handbook/"`. Where no document came from, nothing is deleted. None: everything in the namespace.
    :param keep: `source_id`s (without namespace) that are not deleted although missing, such as files that could not be
        read. It is looked at after the last document.
    :param progress: Called with the report so far, again and again.
    :param raise_on_failure: Raise the first failure, instead of reporting it and going on with the other sources.
    :returns: The report.
    :raises EmbeddingMismatchError: If the index holds embeddings of another model and `reembed` is not set.
    """
    run = IndexRun(document_store, embedder, splitter, summarizer, embedding_model, reembed, progress, raise_on_failure)
    return drive(run.steps(documents, delete_missing, scope, keep))


async def index_documents_async(
    documents: Iterable[Document],
    document_store: DocumentStore,
    embedder: DocumentEmbedder,
    splitter: HierarchicalSplitter,
    *,
    summarizer: Any = None,
    embedding_model: str | None = None,
    reembed: bool = False,
    delete_missing: bool = False,
    scope: Sequence[str] | None = None,
    keep: Collection[str] = (),
    progress: Progress | None = None,
    raise_on_failure: bool = False,
) -> IndexReport:
    """
    Bring an index in step with documents, asynchronously. Everything is as in `index_documents`.

    :param documents: The sources.
    :param document_store: The store of the index.
    :param embedder: Embeds the leaves.
    :param splitter: Splits the sources.
    :param summarizer: Makes summaries out of `parents`.
    :param embedding_model: Name under which the index records the model.
    :param reembed: Replace embeddings of another model.
    :param delete_missing: Delete the sources in `scope` that were not among the documents.
    :param scope: The beginnings of the `source_id`s that `documents` is complete for.
    :param keep: `source_id`s that are not deleted although missing.
    :param progress: Called with the report so far.
    :param raise_on_failure: Raise the first failure.
    :returns: The report.
    :raises EmbeddingMismatchError: As `index_documents`.
    """
    run = IndexRun(document_store, embedder, splitter, summarizer, embedding_model, reembed, progress, raise_on_failure)
    return await drive_async(run.steps(documents, delete_missing, scope, keep))


def delete_sources(document_store: DocumentStore, source_ids: Iterable[str]) -> list[str]:
    """
    Delete sources with everything that belongs to them.

    :param document_store: The store of the index.
    :param source_ids: The sources, with their namespace (`"namespace::source_id"`) if they have one.
    :returns: Those that were in the index.
    """

    def steps() -> Steps[list[str]]:
        wanted = list(source_ids)
        with (yield from exclusive(document_store)):
            found = yield from read_by_ids(document_store, map(chunks.source_record_id, wanted))
            yield from IndexWriter(document_store).delete(list(found.values()))
        return [source_id for source_id in wanted if chunks.source_record_id(source_id) in found]

    return drive(steps())
