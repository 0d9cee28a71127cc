from collections import Counter, defaultdict
from typing import Any, TypedDict

from haystack import Document, component, default_to_dict
from haystack.components.embedders.types import DocumentEmbedder
from haystack.core.serialization import component_to_dict
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.drift import EmbeddingSettings, is_current, summary_settings
from haystack_adv_retrieval.models import embedding_model_name
from haystack_adv_retrieval.stores import BATCH_SIZE, read_by_ids


class IndexPlan(TypedDict):
    """What is to be written besides the documents that get embedded, and what is to be deleted. Without embeddings."""

    records: list[Document]  # the records of the sources to write, as they will be
    stored: dict[str, dict[str, Any]]  # by source id, the metadata of the record that is in the store
    parents: list[Document]
    reused: list[Document]  # leaves and summaries whose embeddings the store holds
    embedding_ids: dict[str, str]  # by the id of a reused document, the id of the stored one with its embedding
    obsolete: dict[str, list[str]]  # by source id, the ids to delete in the end, what is searched first
    skipped: int  # how many sources are in the index as they are
    reembed: bool  # whether embeddings of other models may be in the index


class EmbeddingMismatchError(ValueError):
    """The index holds embeddings that cannot be compared with those of the embedder."""


@component
class IndexDiff:
    """
    Compares split documents with an index, so that only what is new gets embedded.

    A source that is in the index as it is costs nothing. Of a changed one, only the leaves whose embedded text is new
    are to be embedded; the others keep their embedding, also if they moved or their metadata changed. Nothing is
    written: `IndexWriter` does that, after the embedder. An index whose embeddings come from another model is refused.

    ### Usage example
    ```python
    from haystack import Document
    from haystack.components.embedders import MockDocumentEmbedder
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import HierarchicalSplitter, IndexDiff, IndexWriter

    store, embedder, splitter = InMemoryDocumentStore(), MockDocumentEmbedder(), HierarchicalSplitter()
    diff, writer = IndexDiff(store, embedder), IndexWriter(store)
    for text in ["Refunds take 14 days.", "Refunds take 14 days."]:
        split = splitter.run(documents=[Document(content=text, meta={"source_id": "terms"})])
        changes = diff.run(**split)
        embedded = embedder.run(documents=changes["to_embed"])
        print(writer.run(documents=embedded["documents"], plan=changes["plan"])["report"])
    ```
    """

    def __init__(
        self,
        document_store: DocumentStore,
        embedder: DocumentEmbedder,
        *,
        embedding_model: str | None = None,
        reembed: bool = False,
    ) -> None:
        """
        Create an IndexDiff.

        :param document_store: The store of the index.
        :param embedder: The document embedder, or one with the same settings, as in the pipeline. It is not run; its
            model, `meta_fields_to_embed`, `embedding_separator`, `prefix` and `suffix` decide what can be reused.
        :param embedding_model: Name under which the index records the model. None: that of the embedder.
        :param reembed: Whether embeddings of another model are replaced instead of refused.
        :raises ValueError: If the embedder does not say which model it uses, and `embedding_model` neither.
        """
        self.document_store = document_store
        self.embedder = embedder
        self.embedding_model = embedding_model
        self.reembed = reembed
        self.settings = _settings(embedder, embedding_model)

    def to_dict(self) -> dict[str, Any]:
        """Serialize the component, with its embedder."""
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            embedder=component_to_dict(self.embedder, "embedder"),
            embedding_model=self.embedding_model,
            reembed=self.reembed,
        )

    @component.output_types(to_embed=list[Document], plan=IndexPlan)
    def run(
        self,
        documents: list[Document],
        parents: list[Document],
        sources: list[Document],
        summaries: list[Document] | None = None,
        reembed: bool | None = None,
    ) -> dict[str, Any]:
        """
        Compare the output of a splitter with the index.

        :param documents: All leaves of the sources.
        :param parents: All coarser chunks.
        :param sources: The source records.
        :param summaries: Summaries of sections or sources, with the ids that `core.chunks.summary_id` gives. None: the
            sources' summaries are not looked at.
        :param reembed: Overrides the parameter of the component.
        :returns: `to_embed`: the leaves, then the summaries, that need an embedding; `plan`: for `IndexWriter`.
        :raises EmbeddingMismatchError: If the index holds embeddings of another model and `reembed` is not set.
        :raises ValueError: If a summary has another id.
        """
        return drive(self._run(documents, parents, sources, summaries, reembed))

    @component.output_types(to_embed=list[Document], plan=IndexPlan)
    async def run_async(
        self,
        documents: list[Document],
        parents: list[Document],
        sources: list[Document],
        summaries: list[Document] | None = None,
        reembed: bool | None = None,
    ) -> dict[str, Any]:
        """
        Compare the output of a splitter with the index, asynchronously.

        :param documents: All leaves of the sources.
        :param parents: All coarser chunks.
        :param sources: The source records.
        :param summaries: Summaries of sections or sources.
        :param reembed: Overrides the parameter of the component.
        :returns: As `run`.
        :raises EmbeddingMismatchError: As `run`.
        :raises ValueError: As `run`.
        """
        return await drive_async(self._run(documents, parents, sources, summaries, reembed))

    def _run(
        self,
        documents: list[Document],
        parents: list[Document],
        sources: list[Document],
        summaries: list[Document] | None,
        reembed: bool | None,
    ) -> Steps[dict[str, Any]]:
        reembed = self.reembed if reembed is None else reembed
        if not reembed:
            yield from self.refuse_other_models()
        plan, to_embed = yield from self.compare(documents, parents, sources, summaries)
        return {"to_embed": to_embed, "plan": {**plan, "reembed": reembed}}

    def refuse_other_models(self) -> Steps[None]:
        """
        Check that all embeddings in the index come from the embedder's model, as steps for `drive`.

        :raises EmbeddingMismatchError: If they do not.
        """
        filters = {
            "operator": "AND",
            "conditions": [
                {"field": f"meta.{chunks.UNIT}", "operator": "==", "value": "source"},
                {"field": f"meta.{chunks.EMBEDDING_MODEL}", "operator": "!=", "value": self.settings.model},
            ],
        }
        records: list[Document] = yield Call(self.document_store, "filter_documents", {"filters": filters})
        others = Counter(record.meta.get(chunks.EMBEDDING_MODEL) for record in records)
        del others[None]
        if others:
            (model, count), *_ = others.most_common()
            raise EmbeddingMismatchError(
                f"The index holds embeddings of the model {model!r} ({count} sources), not of {self.settings.model!r}. "
                "Embeddings of different models cannot be compared: use that model, or replace all embeddings with "
                "`reembed=True` (`--reembed`)."
            )

    def current(
        self, records: list[Document], *, summarized: bool, summary_settings: str | None = None
    ) -> Steps[list[bool]]:
        """
        Tell which sources are in the index as they are, as steps for `drive`.

        :param records: Source records, with or without counts.
        :param summarized: Whether the sources are to have summaries.
        :param summary_settings: How they are made; None takes those that there are.
        :returns: One answer per record.
        """
        stored = yield from self._stored_records(records)
        return [
            is_current(
                record.meta,
                stored.get(record.meta[chunks.SOURCE_ID]),
                self.settings,
                summarized=summarized,
                summary_settings=summary_settings,
            )
            for record in records
        ]

    def compare(
        self,
        documents: list[Document],
        parents: list[Document],
        sources: list[Document],
        summaries: list[Document] | None = None,
    ) -> Steps[tuple[IndexPlan, list[Document]]]:
        """
        Compare without a look at other sources, as steps for `drive`.

        :param documents: All leaves of the sources.
        :param parents: All coarser chunks.
        :param sources: The source records.
        :param summaries: Summaries, or None.
        :returns: The plan, and what needs an embedding.
        """
        stored = yield from self._stored_records(sources)
        by_source: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for summary in summaries or []:
            by_source[summary.meta[chunks.SOURCE_ID]].append(summary.meta)
        summarized = summaries is not None
        records: dict[str, Document] = {}
        for source in sources:
            source_id = source.meta[chunks.SOURCE_ID]
            made = summary_settings(by_source[source_id]) if summarized else None
            if not is_current(
                source.meta, stored.get(source_id), self.settings, summarized=summarized, summary_settings=made
            ):
                extra = {chunks.SUMMARY_COUNT: len(by_source[source_id]), chunks.SUMMARY_SETTINGS: made}
                records[source_id] = self._record(source, extra if summarized else {})

        parents = [parent for parent in parents if parent.meta[chunks.SOURCE_ID] in records]
        searched = [unit for unit in (*documents, *(summaries or [])) if unit.meta[chunks.SOURCE_ID] in records]
        _check_summary_ids(summaries or [])
        replaced = {source_id: meta for source_id, meta in stored.items() if source_id in records}
        known = yield from self._known_embeddings(replaced)
        to_embed: list[Document] = []
        reused: list[Document] = []
        embedding_ids: dict[str, str] = {}
        for unit in searched:
            old = known.get((unit.meta[chunks.SOURCE_ID], self.settings.text_key(unit.content or "", unit.meta)))
            (reused if old else to_embed).append(unit)
            if old:
                embedding_ids[unit.id] = old
        new_ids = {chunk.id for chunk in (*parents, *searched)}
        obsolete = {
            source_id: [chunk_id for ids in chunks.version_ids(meta) for chunk_id in ids if chunk_id not in new_ids]
            for source_id, meta in replaced.items()
        }
        plan: IndexPlan = {
            "records": list(records.values()),
            "stored": replaced,
            "parents": parents,
            "reused": reused,
            "embedding_ids": embedding_ids,
            "obsolete": obsolete,
            "skipped": len(sources) - len(records),
            "reembed": self.reembed,
        }
        return plan, to_embed

    def _stored_records(self, records: list[Document]) -> Steps[dict[str, dict[str, Any]]]:
        found = yield from read_by_ids(self.document_store, [record.id for record in records])
        return {record.meta[chunks.SOURCE_ID]: record.meta for record in found.values()}

    def _record(self, source: Document, summaries: dict[str, Any]) -> Document:
        made = {chunks.EMBEDDING_MODEL: self.settings.model, chunks.EMBEDDING_TEXT: self.settings.text_hash}
        return Document(id=source.id, meta=source.meta | made | summaries)

    def _known_embeddings(self, stored: dict[str, dict[str, Any]]) -> Steps[dict[tuple[str, str], str]]:
        """Find which texts of which sources the store has embeddings of, and under which id."""
        reusable = [meta for meta in stored.values() if self.settings.made(meta)]
        ids = [chunk_id for meta in reusable for chunk_id in chunks.version_ids(meta)[0]]
        known: dict[tuple[str, str], str] = {}
        for start in range(0, len(ids), BATCH_SIZE):
            found = yield from read_by_ids(self.document_store, ids[start : start + BATCH_SIZE])
            for document in found.values():
                if document.embedding:
                    text = self.settings.text_key(document.content or "", document.meta)
                    known.setdefault((document.meta[chunks.SOURCE_ID], text), document.id)
        return known


def _settings(embedder: DocumentEmbedder, model: str | None) -> EmbeddingSettings:
    named = model or next((name for name in (getattr(embedder, key, None) for key in _MODEL_KEYS) if name), None)
    if named is None and not hasattr(embedder, _MODEL_KEYS[0]):
        raise ValueError(
            f"embedding_model must be given, as {type(embedder).__name__} does not say which model it uses"
        )
    joined_by = [str(getattr(embedder, key, None) or "") for key in ("prefix", "suffix", "embedding_separator")]
    fields = getattr(embedder, "meta_fields_to_embed", None) or ()
    return EmbeddingSettings(embedding_model_name(named), tuple(fields), tuple(joined_by))


# Where Haystack's embedders keep the name of their model.
_MODEL_KEYS = ("model", "model_name", "azure_deployment")


def _check_summary_ids(summaries: list[Document]) -> None:
    for summary in summaries:
        address = (
            summary.meta[key] for key in (chunks.SOURCE_ID, chunks.SOURCE_VERSION, chunks.LEVEL, chunks.SPLIT_ID)
        )
        if summary.id != chunks.summary_id(chunks.chunk_id(*address)):
            raise ValueError(f"The id of a summary must be that of chunks.summary_id, got {summary.id!r}")
