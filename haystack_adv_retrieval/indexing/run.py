"""One run of indexing: which sources have changed, working on them in groups, and what to do when one fails."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from haystack import Document, logging
from haystack.components.embedders.types import DocumentEmbedder
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps
from haystack_adv_retrieval.components.hierarchical_splitter import HierarchicalSplitter
from haystack_adv_retrieval.components.index_diff import EmbeddingMismatchError, IndexDiff
from haystack_adv_retrieval.components.index_writer import IndexWriter
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.drift import batches
from haystack_adv_retrieval.stores import BATCH_SIZE, exclusive

logger = logging.getLogger(__name__)

# Sources that are worked on together, so that batches of the embedder and the store span them: their number, and the
# characters of their texts, which bound the memory.
MAX_SOURCES = 256
MAX_CHARACTERS = 500_000
# After so many sources that failed one after another, the store and the embedder are probed.
FAILURES_IN_A_ROW = 10
TWICE = "Several documents have this source_id; only the first was indexed."


@dataclass
class IndexReport:
    """
    What an indexing run did.

    :param added: Number of sources that are new in the index.
    :param updated: Number of sources that replaced what the index held of them.
    :param skipped: Number of sources that were in the index as they are.
    :param deleted: Number of sources that were deleted.
    :param leaves_embedded: Number of leaves (and summaries) that were embedded and written.
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


class _OutOfService(Exception):  # noqa: N818 - a signal
    """The store or the embedder does not answer at all."""


class IndexRun:
    """One run of `index_documents`, which describes the parameters."""

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
        """Run, as steps for `drive`."""
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
            first, second = _halves(batch)
            return [*(yield from self._changed(first)), *(yield from self._changed(second))]
        changed = []
        for document, record, is_current in zip(batch, records, current, strict=True):
            source_id = record.meta[chunks.SOURCE_ID]
            if source_id in self.seen:
                self.report.failures[source_id] = TWICE
                continue
            self.seen.add(source_id)
            if is_current:
                self.report.skipped += 1
            else:
                changed.append(document)
        return changed

    def _update(self, group: list[Document]) -> Steps[None]:
        """Index changed documents together or, if that fails, by halves: what failed is repaired by the retry."""
        embedded = self.report.leaves_embedded
        try:
            if group:
                yield from self._update_together(group)
        except EmbeddingMismatchError:
            raise
        except Exception as error:
            self.report.leaves_embedded = embedded  # what was not written does not count
            if len(group) > 1:
                for half in _halves(group):
                    yield from self._update(half)
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
            for batch in batches([*leaves, *plan["reused"]], lambda _leaf: 0, 0, BATCH_SIZE):
                leaves = yield from self.writer.with_embeddings(batch, plan, self._embed)
                embedded |= {leaf.id: leaf for leaf in leaves}
            inputs = {"parents": split["parents"], "documents": list(embedded.values())}
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


def _halves(documents: list[Document]) -> tuple[list[Document], list[Document]]:
    middle = len(documents) // 2
    return documents[:middle], documents[middle:]


def _batches(documents: Iterable[Document]) -> Iterable[list[Document]]:
    return batches(documents, lambda document: len(document.content or ""), MAX_CHARACTERS, MAX_SOURCES)
