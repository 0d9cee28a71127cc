from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from haystack import Document, component
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.components.index_diff import EmbeddingMismatchError, IndexPlan
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.drift import is_settled, pending, same_record, tombstone
from haystack_adv_retrieval.stores import (
    BATCH_SIZE,
    delete_by_ids,
    delete_matching,
    exclusive,
    overwrite,
    read_by_ids,
)

Embed = Callable[[list[Document]], Steps[list[Document]]]


@component
class IndexWriter:
    """
    Writes what `IndexDiff` found to an index, so that an interruption at any point harms nothing.

    A changed source becomes a new version beside the old one: parents first, then what is searched, then the source
    record that names the current version, and only then the old version is deleted. Before that, the record is marked;
    a run that finds the mark of an interrupted one repairs the source. A reader sees every leaf with its parents at any
    time, and between the last two steps the leaves of both versions.

    Runs on one index take turns within a process. If another run changed a source between `IndexDiff` and the writer,
    the writer refuses; run again. Other processes are not held off: the embedded store admits one at a time by itself;
    on a server, let a single process write.

    ### Usage example
    ```python
    from haystack import Document
    from haystack.components.embedders import MockDocumentEmbedder
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import HierarchicalSplitter, IndexDiff, IndexWriter

    store, embedder = InMemoryDocumentStore(), MockDocumentEmbedder()
    split = HierarchicalSplitter().run(documents=[Document(content="Refunds take 14 days.")])
    changes = IndexDiff(store, embedder).run(**split)
    embedded = embedder.run(documents=changes["to_embed"])["documents"]
    print(IndexWriter(store).run(documents=embedded, plan=changes["plan"])["report"])
    ```
    """

    def __init__(self, document_store: DocumentStore) -> None:
        """
        Create an IndexWriter.

        :param document_store: The store of the index.
        """
        self.document_store = document_store

    @component.output_types(report=dict[str, Any])
    def run(self, documents: list[Document], plan: IndexPlan) -> dict[str, Any]:
        """
        Write to the index.

        :param documents: What `IndexDiff` gave to embed, with embeddings. A source of which one is missing, or has no
            embedding, stays as it was and is among the failures.
        :param plan: The plan of `IndexDiff`.
        :returns: `report`: counts of sources (`added`, `updated`, `skipped`), of leaves and summaries
            (`leaves_embedded`, `leaves_reused`), and `failures`, the reason by source id.
        :raises RuntimeError: If the index has changed since the plan was made.
        :raises EmbeddingMismatchError: If the embeddings have another dimension than those in the index.
        """
        return drive(self._run(documents, plan))

    @component.output_types(report=dict[str, Any])
    async def run_async(self, documents: list[Document], plan: IndexPlan) -> dict[str, Any]:
        """
        Write to the index, asynchronously.

        :param documents: What `IndexDiff` gave to embed, with embeddings.
        :param plan: The plan of `IndexDiff`.
        :returns: As `run`.
        :raises RuntimeError: As `run`.
        :raises EmbeddingMismatchError: As `run`.
        """
        return await drive_async(self._run(documents, plan))

    def _run(self, documents: list[Document], plan: IndexPlan) -> Steps[dict[str, Any]]:
        failed = _incomplete(documents, plan)
        plan = _without(plan, failed)
        documents = [document for document in documents if _source(document) not in failed]
        with (yield from exclusive(self.document_store)):
            yield from self.save(documents, plan)
        added = sum(chunks.SOURCE_VERSION not in plan["stored"].get(_source(record), {}) for record in plan["records"])
        report = {
            "added": added,
            "updated": len(plan["records"]) - added,
            "skipped": plan["skipped"],
            "leaves_embedded": len(documents),
            "leaves_reused": len(plan["reused"]),
            "failures": dict.fromkeys(failed, "the embedder gave no embedding"),
        }
        return {"report": report}

    def save(self, documents: list[Document], plan: IndexPlan, embed: Embed | None = None) -> Steps[None]:
        """
        Write to the index, as steps for `drive`, without waiting for other runs.

        :param documents: What `IndexDiff` gave to embed.
        :param plan: The plan of `IndexDiff`.
        :param embed: Embeds a batch of documents just before it is written. None: they have their embeddings.
        :raises RuntimeError: If the index has changed since the plan was made.
        :raises EmbeddingMismatchError: If the embeddings have another dimension than those in the index.
        """
        if not plan["records"]:
            return
        # Leaves before the summaries that lead to them; new ones first, so that a failing embedder is noticed early.
        searched = sorted([*documents, *plan["reused"]], key=lambda unit: unit.meta[chunks.UNIT] == "summary")
        dimension: int | None = None
        for start in range(0, len(searched), BATCH_SIZE):
            batch = yield from self.with_embeddings(searched[start : start + BATCH_SIZE], plan, embed)
            _check_dimensions({dimension, *(len(unit.embedding or ()) for unit in batch)})
            if start == 0:
                dimension = len(batch[0].embedding or ())
                if not plan["reembed"]:
                    yield from self._refuse_other_dimensions(dimension)
                yield from self._begin(plan)
            yield from overwrite(self.document_store, batch)
        if not searched:
            yield from self._begin(plan)
        yield from self._finish(plan, dimension)

    def delete(self, records: Sequence[Document]) -> Steps[None]:
        """
        Delete sources with all their chunks, as steps for `drive`, without waiting for other runs.

        :param records: The sources' records as they are in the store.
        """
        yield from overwrite(self.document_store, [replace(record, meta=tombstone(record.meta)) for record in records])
        yield from delete_by_ids(
            self.document_store,
            [chunk for record in records for ids in chunks.version_ids(record.meta) for chunk in ids],
        )
        yield from self.sweep({_source(record): None for record in records if not is_settled(record.meta)})
        yield from delete_by_ids(self.document_store, [record.id for record in records])

    def sweep(self, versions: dict[str, str | None]) -> Steps[None]:
        """
        Delete what other versions of sources left behind, as steps for `drive`.

        :param versions: By source id, the version that stays, or None.
        """
        if not versions:
            return
        kept = [version for version in versions.values() if version]
        conditions: list[dict[str, Any]] = [
            {"field": f"meta.{chunks.SOURCE_ID}", "operator": "in", "value": list(versions)}
        ]
        if kept:
            conditions.append({"field": f"meta.{chunks.SOURCE_VERSION}", "operator": "not in", "value": kept})
        for units in (["summary", "leaf"], ["block"]):
            unit = {"field": f"meta.{chunks.UNIT}", "operator": "in", "value": units}
            yield from delete_matching(self.document_store, {"operator": "AND", "conditions": [*conditions, unit]})

    def _begin(self, plan: IndexPlan) -> Steps[None]:
        records = plan["records"]
        found = yield from read_by_ids(self.document_store, [record.id for record in records])
        for record in records:
            stored = found[record.id].meta if record.id in found else None
            if not same_record(stored, plan["stored"].get(_source(record))):
                raise RuntimeError(
                    f"The source {_source(record)!r} was changed in the index by another run meanwhile; run again."
                )
        yield from overwrite(
            self.document_store,
            [replace(record, meta=pending(record.meta, plan["stored"].get(_source(record)))) for record in records],
        )
        yield from overwrite(self.document_store, plan["parents"])

    def _finish(self, plan: IndexPlan, dimension: int | None) -> Steps[None]:
        now = {chunks.INDEXED_AT: datetime.now(UTC).isoformat(timespec="seconds")}
        size = {chunks.EMBEDDING_DIM: dimension}
        records = [
            replace(record, meta=record.meta | now | (size if record.meta[chunks.LEAF_END] else {}))
            for record in plan["records"]
        ]
        replacing = [record for record in records if _source(record) in plan["stored"]]
        if replacing:
            yield from overwrite(
                self.document_store,
                [replace(record, meta=record.meta | {chunks.PENDING: True}) for record in replacing],
            )
            yield from delete_by_ids(
                self.document_store, [chunk_id for ids in plan["obsolete"].values() for chunk_id in ids]
            )
            yield from self.sweep(
                {
                    _source(record): record.meta[chunks.SOURCE_VERSION]
                    for record in replacing
                    if not is_settled(plan["stored"][_source(record)])
                }
            )
        yield from overwrite(self.document_store, records)

    def with_embeddings(self, batch: list[Document], plan: IndexPlan, embed: Embed | None) -> Steps[list[Document]]:
        """
        Give documents their embeddings, as steps for `drive`: their own, those that the index holds, or new ones.

        :param batch: Leaves and summaries of the plan.
        :param plan: The plan of `IndexDiff`.
        :param embed: Embeds documents. None: what is not in the index has its embedding.
        :returns: The documents with embeddings, in the same order.
        :raises ValueError: If there is no embedding for one of them.
        """
        old_ids = plan["embedding_ids"]
        new = [unit for unit in batch if unit.id not in old_ids]
        if embed and (bare := [unit for unit in new if not unit.embedding]):
            new = [unit for unit in new if unit.embedding] + (yield from embed(bare))
        stored = yield from read_by_ids(self.document_store, [old_ids[unit.id] for unit in batch if unit.id in old_ids])
        embeddings = {unit.id: unit.embedding for unit in new}
        embeddings |= {unit.id: stored[old].embedding for unit in batch if (old := old_ids.get(unit.id)) in stored}
        for unit in batch:
            if not embeddings.get(unit.id):
                raise ValueError(f"There is no embedding for a {unit.meta[chunks.UNIT]} of {_source(unit)!r}")
        return [replace(unit, embedding=embeddings[unit.id]) for unit in batch]

    def _refuse_other_dimensions(self, dimension: int) -> Steps[None]:
        conditions = [
            {"field": f"meta.{chunks.UNIT}", "operator": "==", "value": "source"},
            {"field": f"meta.{chunks.EMBEDDING_DIM}", "operator": "!=", "value": dimension},
        ]
        filters = {"operator": "AND", "conditions": conditions}
        records: list[Document] = yield Call(self.document_store, "filter_documents", {"filters": filters})
        _check_dimensions({dimension, *(record.meta.get(chunks.EMBEDDING_DIM) for record in records)})


def _source(document: Document) -> str:
    return str(document.meta[chunks.SOURCE_ID])


def _check_dimensions(dimensions: set[int | None]) -> None:
    found = sorted(dimension for dimension in dimensions if dimension)
    if len(found) > 1:
        raise EmbeddingMismatchError(
            f"Embeddings of the dimensions {found} do not go into one index. Use the model that the index was made "
            "with, or replace all embeddings: `reembed=True` (`--reembed`), and a new name as `embedding_model`."
        )


def _incomplete(documents: list[Document], plan: IndexPlan) -> set[str]:
    """Find the sources of which something to be searched is missing or has no embedding."""
    whole = [*plan["reused"], *(document for document in documents if document.embedding)]
    counts = Counter(map(_source, whole))
    return {
        _source(record)
        for record in plan["records"]
        if counts[_source(record)] != record.meta[chunks.LEAF_END] + record.meta.get(chunks.SUMMARY_COUNT, 0)
    }


def _without(plan: IndexPlan, left_out: set[str]) -> IndexPlan:
    """Leave sources out of a plan."""

    def kept(documents: list[Document]) -> list[Document]:
        return [document for document in documents if _source(document) not in left_out]

    return {
        **plan,
        "records": kept(plan["records"]),
        "parents": kept(plan["parents"]),
        "reused": kept(plan["reused"]),
        "obsolete": {source_id: ids for source_id, ids in plan["obsolete"].items() if source_id not in left_out},
    }
