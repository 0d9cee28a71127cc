"""Looking after an index: what is in it, what does not belong there, and putting it right."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from haystack import Document
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.drift import Audit, audit, is_settled, orphans
from haystack_adv_retrieval.stores import both, delete_by_ids, exclusive, overwrite, scan


@dataclass
class IndexStatus:
    """
    What is in an index.

    :param sources: Number of sources that can be found.
    :param versions: Number of versions of sources; more than sources if something is left over.
    :param leaves: Number of leaves.
    :param parents: Number of coarser chunks.
    :param summaries: Number of summaries.
    :param last_indexed: When a source was last written (UTC, ISO 8601).
    :param namespaces: Number of sources by namespace; "" is the default one.
    :param embedding_models: Number of sources by embedding model.
    :param unfinished: Ids of sources whose writing or deletion was interrupted. The next run on them, or `prune`, puts
        them right.
    :param stale: Number of chunks that belong to no current version. `prune` deletes them.
    :param damaged: Ids of sources of which chunks are missing. `prune` marks them, the next run on them restores them.
    """

    sources: int = 0
    versions: int = 0
    leaves: int = 0
    parents: int = 0
    summaries: int = 0
    last_indexed: str | None = None
    namespaces: dict[str, int] = field(default_factory=dict)
    embedding_models: dict[str, int] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    stale: int = 0
    damaged: list[str] = field(default_factory=list)

    @property
    def drift(self) -> bool:
        """Whether anything is not as the source records say."""
        return bool(self.unfinished or self.stale or self.damaged)


@dataclass
class PruneReport:
    """
    What `prune` did. All is empty if the index was in order.

    :param chunks_deleted: Number of chunks that belonged to no current version, or had no parent.
    :param sources_deleted: Ids of sources that were never finished, or whose deletion was not.
    :param sources_settled: Ids of sources that turned out whole although their last run was interrupted.
    :param sources_damaged: Ids of sources that have to be indexed again, which the next run on them does.
    """

    chunks_deleted: int = 0
    sources_deleted: list[str] = field(default_factory=list)
    sources_settled: list[str] = field(default_factory=list)
    sources_damaged: list[str] = field(default_factory=list)


def status(document_store: DocumentStore, *, namespace: str | None = None) -> IndexStatus:
    """
    Tell what is in an index, and whether it is in order. Reads the metadata of all chunks.

    :param document_store: The store of the index.
    :param namespace: Only this namespace. None: all of them.
    :returns: The status.
    """
    records, found = _audit(document_store, namespace)
    whole = [record.meta for record in records if chunks.SOURCE_VERSION in record.meta]
    return IndexStatus(
        sources=len(whole),
        versions=found.versions,
        leaves=found.counts["leaf"],
        parents=found.counts["block"],
        summaries=found.counts["summary"],
        last_indexed=max((meta[chunks.INDEXED_AT] for meta in whole), default=None),
        namespaces=dict(Counter(meta.get(chunks.NAMESPACE, "") for meta in whole)),
        embedding_models=dict(
            Counter(meta[chunks.EMBEDDING_MODEL] for meta in whole if chunks.EMBEDDING_MODEL in meta)
        ),
        unfinished=found.pending,
        stale=len(found.stale),
        damaged=found.damaged,
    )


def prune(document_store: DocumentStore, *, namespace: str | None = None, unfinished_only: bool = False) -> PruneReport:
    """
    Delete what does not belong in an index, and finish or mark what was interrupted.

    What another process is just writing looks as if it had been interrupted, so don't prune a server's index meanwhile.

    :param document_store: The store of the index.
    :param namespace: Only this namespace. None: all of them.
    :param unfinished_only: Look only at the sources whose records say that they were interrupted. That takes no time,
        however large the index, and is enough after a crash.
    :returns: What was done.
    """
    return drive(_prune(document_store, namespace, unfinished_only))


def _prune(document_store: DocumentStore, namespace: str | None, unfinished_only: bool) -> Steps[PruneReport]:
    report = PruneReport()
    with (yield from exclusive(document_store)):
        records, found = _audit(document_store, namespace, unfinished_only)
        yield from delete_by_ids(document_store, found.stale)
        report.chunks_deleted = len(found.stale)
        for record in records:
            source_id, meta = record.meta[chunks.SOURCE_ID], record.meta
            damaged = source_id in found.damaged
            if is_settled(meta) and not damaged:
                continue
            if chunks.SOURCE_VERSION not in meta:
                yield from delete_by_ids(document_store, [record.id])
                report.sources_deleted.append(source_id)
                continue
            if damaged:
                deleted, damaged = yield from _clear(document_store, meta)
                report.chunks_deleted += deleted
            settled = not damaged and chunks.EMBEDDING_MODEL in meta
            (report.sources_settled if settled else report.sources_damaged).append(source_id)
            marked = {key: value for key, value in meta.items() if key != chunks.PENDING}
            if not settled:
                marked[chunks.PENDING] = True
            yield from overwrite(document_store, [replace(record, meta=marked)])
    return report


def _clear(document_store: DocumentStore, record: dict[str, Any]) -> Steps[tuple[int, bool]]:
    """Delete what has no parent or no place in a version; tell how much that was, and whether anything is missing."""
    same = [_is(key, record[key]) for key in (chunks.SOURCE_ID, chunks.SOURCE_VERSION)]
    documents: list[Document] = yield Call(
        document_store, "filter_documents", {"filters": both(_units("leaf", "summary", "block"), *same)}
    )
    places = {chunk_id for ids in chunks.version_ids(record) for chunk_id in ids}
    lost = orphans([(document.id, document.meta) for document in documents if document.id in places])
    lost += [document.id for document in documents if document.id not in places]
    yield from delete_by_ids(document_store, lost[::-1])
    expected = sum(map(int, record[chunks.LEVEL_COUNTS].split(","))) + record.get(chunks.SUMMARY_COUNT, 0)
    return len(lost), len(documents) - len(lost) != expected


def _audit(
    document_store: DocumentStore, namespace: str | None, unfinished_only: bool = False
) -> tuple[list[Document], Audit]:
    within = _is(chunks.NAMESPACE, namespace) if namespace else None
    pending = _is(chunks.PENDING, True) if unfinished_only else None
    records = [
        replace(record, embedding=None)
        for record in scan(document_store, both(_units("source"), within, pending))
        if record.id == chunks.source_record_id(record.meta.get(chunks.SOURCE_ID, ""))
    ]
    if unfinished_only:
        if not records:
            return [], Audit()
        source_ids = [record.meta[chunks.SOURCE_ID] for record in records]
        within = {"field": f"meta.{chunks.SOURCE_ID}", "operator": "in", "value": source_ids}
    stored = scan(document_store, both(_units("leaf", "summary", "block"), within))
    ours = ((chunk.id, chunk.meta) for chunk in stored if chunks.SOURCE_VERSION in chunk.meta)
    return records, audit([record.meta for record in records], ours)


def _is(key: str, value: Any) -> dict[str, Any]:
    return {"field": f"meta.{key}", "operator": "==", "value": value}


def _units(*units: str) -> dict[str, Any]:
    return {"field": f"meta.{chunks.UNIT}", "operator": "in", "value": list(units)}
