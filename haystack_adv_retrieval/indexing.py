"""Indexing as one call: split, compare with the index, embed what is new, write, delete what is gone."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from haystack import Document, logging
from haystack.components.embedders.types import DocumentEmbedder
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.components.hierarchical_splitter import HierarchicalSplitter
from haystack_adv_retrieval.components.index_diff import EmbeddingMismatchError, IndexDiff
from haystack_adv_retrieval.components.index_writer import IndexWriter
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.sync import batches
from haystack_adv_retrieval.stores import exclusive, read_by_ids

logger = logging.getLogger(__name__)

# Sources that are worked on together, so that batches of the embedder and the store span them: their number, and the
# characters of their texts, which bound the memory.
MAX_SOURCES = 256
MAX_CHARACTERS = 500_000
# After so many sources that failed one after another, the store and the embedder are probed.
FAILURES_IN_A_ROW = 10


@dataclass
class IndexReport:
    """
    What an indexing run did.

    :param added: Number of sources that are new in the index.
    :param updated: Number of sources that replaced what the index held of them.
    :param skipped: Number of sources that were in the index as they are.
    :param deleted: Number of sources that were deleted.
    :param leaves_embedded: Number of leaves (and summaries) that were embedded.
    :param leaves_reused: Number of leaves (and summaries) of changed sources whose embedding the index held.
    :param failures: The reason by source id. What the index held of these sources before is still there.
    :param notes: What else the user should know, in sentences.
    """

    added: int = 0
    updated: int = 0
    skipped: int = 0
    deleted: int = 0
    leaves_embedded: int = 0
    leaves_reused: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


Progress = Callable[[IndexReport], None]


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
    run = _Indexing(
        document_store, embedder, splitter, summarizer, embedding_model, reembed, progress, raise_on_failure
    )
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
    run = _Indexing(
        document_store, embedder, splitter, summarizer, embedding_model, reembed, progress, raise_on_failure
    )
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


class _OutOfService(Exception):  # noqa: N818 - a signal
    """The store or the embedder does not answer at all."""


class _Indexing:
    """One run of `index_documents`."""

    def __init__(
        self,
        document_store: DocumentStore,
        embedder: DocumentEmbedder,
        splitter: HierarchicalSplitter,
        summarizer: Any,
        embedding_model: str | None,
        reembed: bool,
        progress: Progress | None,
        raise_on_failure: bool,
    ) -> None:
        self.document_store = document_store
        self.embedder = embedder
        self.splitter = splitter
        self.summarizer = summarizer
        self.diff = IndexDiff(document_store, embedder, embedding_model=embedding_model, reembed=reembed)
        self.writer = IndexWriter(document_store)
        self.progress = progress or (lambda _report: None)
        self.raise_on_failure = raise_on_failure
        self.report = IndexReport()
        self.seen: set[str] = set()
        self.unnamed = 0
        self.warm: set[int] = set()
        self.failures_in_a_row = 0

    def steps(
        self, documents: Iterable[Document], delete_missing: bool, scope: Sequence[str] | None, keep: Collection[str]
    ) -> Steps[IndexReport]:
        with (yield from exclusive(self.document_store)):
            if not self.diff.reembed:
                yield from self.diff.refuse_other_models()
            try:
                yield from self._index(documents)
                if delete_missing:
                    yield from self._delete_missing(scope, keep)
            except _OutOfService:
                self._note("Gave up, as the store or the embedder fails; what was not indexed is as it was before.")
        return self.report

    def _index(self, documents: Iterable[Document]) -> Steps[None]:
        reader = _Reader(documents)
        changed: list[Document] = []
        while batch := (yield Call(reader, "read")):
            changed += yield from self._changed(batch)
            *full, changed = [*_batches(changed)] or [[]]
            for group in full:
                yield from self._update(group)
            self.progress(self.report)
        yield from self._update(changed)
        self.progress(self.report)

    def _changed(self, batch: list[Document]) -> Steps[list[Document]]:
        """Choose the documents that are not in the index as they are."""
        try:
            records = self.splitter.source_records(batch)
            current = yield from self.diff.current(
                records,
                summarized=self.summarizer is not None,
                summary_settings=getattr(self.summarizer, "settings", None),
            )
        except Exception as error:
            if len(batch) == 1:
                yield from self._fail(batch[0], error)
                return []
            changed = []
            for document in batch:
                changed += yield from self._changed([document])
            return changed
        changed = []
        for document, record, is_current in zip(batch, records, current, strict=True):
            source_id = record.meta[chunks.SOURCE_ID]
            if source_id in self.seen:
                self.report.failures[source_id] = "Several documents have this source_id; only the first was indexed."
                continue
            self.seen.add(source_id)
            if is_current:
                self.report.skipped += 1
            else:
                changed.append(document)
        return changed

    def _update(self, group: list[Document]) -> Steps[None]:
        """Index changed documents together or, if that fails, each by itself: what failed is repaired by the retry."""
        try:
            if group:
                yield from self._update_together(group)
        except EmbeddingMismatchError:
            raise
        except Exception as error:
            if len(group) > 1:
                for document in group:
                    yield from self._update([document])
            else:
                yield from self._fail(group[0], error)
        else:
            self.failures_in_a_row = 0

    def _update_together(self, group: list[Document]) -> Steps[None]:
        split = yield Call(self.splitter, "run", {"documents": group})
        summaries = None
        embedded: dict[str, Document] = {}
        if self.summarizer is not None:
            yield from self._warm_up(self.summarizer)
            # Sections are summarised by the vectors of their leaves, so these are made before the rest.
            plan, leaves = yield from self.diff.compare(**split, summaries=[])
            leaves = yield from self.writer.with_embeddings([*leaves, *plan["reused"]], plan, self._embed)
            embedded = {leaf.id: leaf for leaf in leaves}
            inputs = {"parents": split["parents"], "documents": leaves}
            summaries = (yield Call(self.summarizer, "run", inputs))["summaries"]
        plan, to_embed = yield from self.diff.compare(**split, summaries=summaries)
        yield from self.writer.save([embedded.get(unit.id, unit) for unit in to_embed], plan, self._embed)
        for record in plan["records"]:
            stored = plan["stored"].get(record.meta[chunks.SOURCE_ID], {})
            if chunks.SOURCE_VERSION in stored:
                self.report.updated += 1
            else:
                self.report.added += 1
        self.report.skipped += plan["skipped"]
        self.report.leaves_reused += len(plan["reused"])

    def _embed(self, documents: list[Document]) -> Steps[list[Document]]:
        yield from self._warm_up(self.embedder)
        embedded: list[Document] = (yield Call(self.embedder, "run", {"documents": documents}))["documents"]
        self.report.leaves_embedded += len(embedded)
        self.progress(self.report)
        return embedded

    def _warm_up(self, part: Any) -> Steps[None]:
        """Load a model, but not before there is work for it."""
        if id(part) not in self.warm and hasattr(part, "warm_up"):
            yield Call(part, "warm_up")
        self.warm.add(id(part))

    def _delete_missing(self, scope: Sequence[str] | None, keep: Collection[str]) -> Steps[None]:
        if self.unnamed:
            self._note("Nothing was deleted, as some documents could not be told by their source_id.")
            return
        namespace = self.splitter.namespace
        prefix = f"{namespace}::" if namespace else ""
        starts = [prefix + start for start in ([""] if scope is None else scope)]
        complete = tuple(start for start in starts if any(source_id.startswith(start) for source_id in self.seen))
        for start in starts:
            if start not in complete:
                self._note(f"There was no document under {start.removeprefix(prefix)!r}: nothing was deleted there.")
        filters = {"field": f"meta.{chunks.UNIT}", "operator": "==", "value": "source"}
        records: list[Document] = yield Call(self.document_store, "filter_documents", {"filters": filters})
        kept = {prefix + source_id for source_id in keep} | self.seen
        missing = [
            record
            for record in records
            if record.meta.get(chunks.NAMESPACE) == namespace
            and (source_id := record.meta.get(chunks.SOURCE_ID, "")).startswith(complete)
            and record.id == chunks.source_record_id(source_id)
            and source_id not in kept
        ]
        for group in batches(missing, lambda _record: 0, 0, MAX_SOURCES):
            yield from self.writer.delete(group)
            self.report.deleted += len(group)
            self.progress(self.report)

    def _fail(self, document: Document, error: Exception) -> Steps[None]:
        if self.raise_on_failure:
            raise error
        try:
            source_id = self.splitter.source_records([document])[0].meta[chunks.SOURCE_ID]
        except Exception:
            source_id = document.id
            self.unnamed += 1
        logger.warning("Source {source_id} was not indexed: {error}", source_id=source_id, error=error)
        self.seen.add(source_id)
        self.report.failures[source_id] = f"{type(error).__name__}: {error}"
        self.failures_in_a_row += 1
        if self.failures_in_a_row % FAILURES_IN_A_ROW == 0:
            try:
                yield Call(self.document_store, "count_documents")
                yield Call(self.embedder, "run", {"documents": [Document(content="probe")]})
            except Exception:
                raise _OutOfService from error

    def _note(self, sentence: str) -> None:
        logger.warning(sentence)
        self.report.notes.append(sentence)


class _Reader:
    """Reads documents in batches; in async code in a thread, as what yields them may read files."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.batches = iter(_batches(documents))

    def read(self) -> list[Document]:
        return next(self.batches, [])


def _batches(documents: Iterable[Document]) -> Iterable[list[Document]]:
    return batches(documents, lambda document: len(document.content or ""), MAX_CHARACTERS, MAX_SOURCES)
