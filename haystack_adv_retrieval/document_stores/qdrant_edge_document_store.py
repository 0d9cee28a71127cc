"""The embedded default store: Qdrant's in-process engine behind Haystack's DocumentStore protocol."""

import asyncio
import os
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import qdrant_edge as engine
from haystack import Document, default_from_dict, default_to_dict, logging
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter

from haystack_adv_retrieval.document_stores.qdrant_edge_filters import (
    EVERYTHING,
    NotNativeError,
    check_filter,
    names_field,
    narrow,
    point_id,
    translate,
)
from haystack_adv_retrieval.document_stores.qdrant_edge_points import ORDER, STORED, searchable, to_document, to_point
from haystack_adv_retrieval.document_stores.qdrant_edge_shards import (
    CONTENT,
    DENSE,
    LANGUAGES,
    OPENING,
    SharedShard,
    Similarity,
    acquire,
)
from haystack_adv_retrieval.parameters import check_at_least, check_choice

logger = logging.getLogger(__name__)

SCAN_SIZE = 1000  # points a page
RRF_K = 60
# By text and by embedding. A hair apart, so that documents with the same ranks are always ordered the same way.
RRF_WEIGHTS = [0.999, 1.0]

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(
    method: Callable[Concatenate["QdrantEdgeDocumentStore", P], R],
) -> Callable[Concatenate["QdrantEdgeDocumentStore", P], Coroutine[Any, Any, R]]:
    """Make the async twin of a method: the same, in a thread; the engine lets others run while it works."""

    @wraps(method)
    async def twin(self: "QdrantEdgeDocumentStore", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self, *args, **kwargs)

    return twin


class QdrantEdgeDocumentStore:
    """
    Keeps documents in a folder and searches them by embedding, by BM25 or by both, inside the process.

    The engine is Qdrant's, in Rust: nothing to start, nothing to download, milliseconds a query, and what was written
    survives the process being killed. All stores of a process that name the same folder share one open shard, so the
    components of a YAML pipeline, several pipelines, threads, sync and async all meet in one place. A second process is
    told to use the server instead. Documents with and without embedding live side by side and read back as they were
    written. Filters mean what they mean in Haystack's InMemoryDocumentStore. Every metadata field is indexed, for
    ranges from the first one on; only filters that the engine has no exact form for look at each document: ranges over
    text or mixed values, and conditions on content and embedding.

    ```python
    from haystack import Document
    from haystack_adv_retrieval import QdrantEdgeDocumentStore

    store = QdrantEdgeDocumentStore("./index")
    store.write_documents([Document(content="Refunds take five days.", meta={"year": 2024}, embedding=[0.1, 0.9])])
    store.search("refunds", filters={"field": "meta.year", "operator": ">=", "value": 2020})
    ```
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        embedding_dim: int | None = None,
        similarity: Similarity = "cosine",
        language: str | None = "en",
    ) -> None:
        """
        Create the store; the folder is opened, and made if missing, when it is first used.

        :param path: The folder. None: the environment variable `ADV_RETRIEVAL_INDEX`, else `./index`, looked up when
            the folder is opened, so that one configuration serves any folder.
        :param embedding_dim: Dimension of the embeddings. None: that of the folder, or of the first embedding written.
        :param similarity: How embeddings are compared: "cosine", "dot_product" or "euclidean"; the same for all stores
            of a folder.
        :param language: Language of the texts in a new folder, for BM25's stemming and stop words: an ISO 639-1 code of
            `LANGUAGES`, or None for neither. A folder keeps the language that it was made with.
        :raises ValueError: If a parameter is out of range.
        """
        check_at_least(1, embedding_dim=embedding_dim)
        check_choice("similarity", similarity, Similarity)
        if language is not None and language not in LANGUAGES:
            raise ValueError(f"language must be None or one of {list(LANGUAGES)}, got {language!r}")
        self.path = path
        self.embedding_dim = embedding_dim
        self.similarity = similarity
        self.language = language
        self._opened: SharedShard | None = None
        self._release: weakref.finalize[..., Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Serialize the store's parameters."""
        return default_to_dict(
            self,
            path=self.path,
            embedding_dim=self.embedding_dim,
            similarity=self.similarity,
            language=self.language,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "QdrantEdgeDocumentStore":
        """
        Restore a store from its parameters.

        :param data: What `to_dict` returned.
        :returns: The store.
        """
        return default_from_dict(cls, data)

    @property
    def _shard(self) -> SharedShard:
        shard = self._opened
        if shard is None or shard.process != os.getpid():
            with OPENING:
                shard = self._opened
                if shard is None or shard.process != os.getpid():
                    shard = self._opened = self._open()
        return shard

    def _open(self) -> SharedShard:
        shard = acquire(self.path or os.environ.get("ADV_RETRIEVAL_INDEX") or "./index", self.language)
        release = weakref.finalize(self, shard.release)
        try:
            self._agree_with(shard)
        except ValueError:
            release()
            raise
        self._release = release
        return shard

    def _agree_with(self, shard: SharedShard) -> None:
        if self.embedding_dim is None:
            shard.check(similarity=self.similarity)
        else:
            shard.add_embeddings(self.embedding_dim, self.similarity)

    @property
    def folder(self) -> str:
        """The resolved folder: stores that have it in common share their documents."""
        return str(self._shard.folder)

    def close(self) -> None:
        """Give the folder back: it closes with the last store of the process that uses it, and reopens on demand."""
        with OPENING:
            if self._release:
                self._release()
            self._opened = self._release = None

    def count_documents(self) -> int:
        """
        Count the documents.

        :returns: How many there are.
        """
        return self._shard.engine.count(engine.CountRequest())

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """
        Read the documents that match a filter.

        :param filters: A Haystack filter; None or empty: all documents.
        :returns: The documents with their embeddings, in the order in which they were written.
        :raises FilterError: If the filter is malformed, or compares what cannot be ordered.
        """
        return self._scroll(self._native(filters))

    def scan_documents(self, filters: dict[str, Any] | None = None) -> Iterator[Document]:
        """
        Read the documents that match a filter page by page, for what looks at very many.

        :param filters: A Haystack filter; None or empty: all documents.
        :returns: The documents without their embeddings, in no particular order.
        :raises FilterError: As `filter_documents`.
        """
        matching = self._native(filters)
        page: Any = None
        while True:
            request = engine.ScrollRequest(page, SCAN_SIZE, matching, with_payload=STORED, with_vector=False)
            records, page = self._shard.engine.scroll(request)
            yield from map(to_document, records)
            if page is None:
                return

    def get_documents_by_id(self, ids: Sequence[str], *, return_embedding: bool = True) -> list[Document]:
        """
        Read documents by their ids.

        :param ids: The ids.
        :param return_embedding: Whether to read the embeddings too.
        :returns: The documents in the order of the ids; unknown ids are skipped.
        """
        points = list(map(point_id, ids))
        records = self._shard.engine.retrieve([*dict.fromkeys(points)], STORED, return_embedding)
        found = {document.id: document for document in map(to_document, records)}
        return [found[document_id] for document_id in ids if document_id in found]

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """
        Write documents, in the given order; they survive the process as soon as this returns.

        :param documents: The documents.
        :param policy: What to do about an id that is in the store, or earlier in the list: FAIL and NONE raise before
            anything is written, SKIP keeps the document that is there, OVERWRITE the new one.
        :returns: How many documents were written.
        :raises DuplicateDocumentError: If the policy is FAIL or NONE and there is a duplicate.
        :raises ValueError: If it is not a list of documents, or an embedding is not of the store's dimension.
        """
        if not isinstance(documents, Iterable) or any(not isinstance(document, Document) for document in documents):
            raise ValueError("Please provide a list of Documents.")
        shard = self._shard
        with shard.write_lock:
            if policy != DuplicatePolicy.OVERWRITE:
                documents = self._without_duplicates(documents, policy)
            self._upsert(documents)
        return len(documents)

    def delete_documents(self, document_ids: list[str]) -> None:
        """
        Delete documents by their ids.

        :param document_ids: The ids; unknown ones are ignored.
        """
        shard = self._shard
        with shard.write_lock:
            shard.update(engine.UpdateOperation.delete_points([*map(point_id, document_ids)]), len(document_ids))

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """
        Delete the documents that match a filter.

        :param filters: A Haystack filter; an empty one deletes nothing.
        :returns: How many documents were deleted.
        """
        if not filters:
            return 0
        shard = self._shard
        with shard.write_lock:
            matching = self._native(filters)
            count = shard.engine.count(engine.CountRequest(filter=matching))
            shard.update(engine.UpdateOperation.delete_points_by_filter(matching), count)
        return count

    def delete_all_documents(self, recreate_index: bool = False) -> None:
        """
        Delete all documents.

        :param recreate_index: Whether to make the folder anew too, which frees its disk space and lets embeddings have
            another dimension, and the texts another language. No other thread may be reading.
        """
        shard = self._shard
        with shard.write_lock:
            if recreate_index:
                shard.recreate(self.language)
                self._agree_with(shard)
            else:
                shard.update(engine.UpdateOperation.delete_points_by_filter(EVERYTHING))

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """
        Change metadata of the documents that match a filter.

        :param filters: A Haystack filter; an empty one changes nothing.
        :param meta: The fields to set; other fields stay, and so do embeddings.
        :returns: How many documents were changed.
        """
        if not filters:
            return 0
        with self._shard.write_lock:
            records = self._records(self._native(filters))
            documents = [replace(document, meta=document.meta | meta) for document in map(to_document, records)]
            self._upsert(documents, map(_order, records))
        return len(documents)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """
        Count the documents that match a filter.

        :param filters: A Haystack filter; an empty one matches all.
        :returns: How many there are.
        """
        return self._shard.engine.count(engine.CountRequest(filter=self._native(filters)))

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """
        Tell which metadata fields there are.

        :returns: By field, `{"type": "keyword" | "long" | "float" | "boolean"}`, of the value that was written last.
        """
        info = self._in_memory().get_metadata_fields_info()
        return {field: {"type": "long" if kind["type"] == "int" else kind["type"]} for field, kind in info.items()}

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """
        Find the smallest and the largest value of a metadata field.

        :param metadata_field: The field, with or without "meta.".
        :returns: `{"min": ..., "max": ...}`, both None if there is no value or they cannot be ordered.
        """
        return self._in_memory().get_metadata_field_min_max(metadata_field)

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """
        List the values of a metadata field.

        :param metadata_field: The field, with or without "meta.".
        :param search_term: Only values that contain this, in any case.
        :param from_: How many values to skip.
        :param size: How many values to return at most.
        :param filters: Only look at documents that match this Haystack filter.
        :returns: The values in the order of their texts, and how many there are in all.
        """
        return self._in_memory(filters).get_metadata_field_unique_values(metadata_field, search_term, from_, size)

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """
        Count the different values of metadata fields.

        :param filters: Only look at documents that match this Haystack filter.
        :param metadata_fields: The fields, with or without "meta.".
        :returns: The count by field, without "meta.".
        """
        return self._in_memory(filters).count_unique_metadata_by_filter({}, metadata_fields)

    def search(
        self,
        query: str | None = None,
        query_embedding: list[float] | None = None,
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        candidates: int | None = None,
        return_embedding: bool = False,
    ) -> list[Document]:
        """
        Search by text (BM25), by embedding, or by both, fused by reciprocal rank.

        :param query: The text.
        :param query_embedding: The embedding.
        :param filters: A Haystack filter.
        :param top_k: How many documents to return at most.
        :param candidates: How many documents each of the two searches adds to the fusion; None: 100. At least `top_k`.
        :param return_embedding: Whether the documents carry their embeddings.
        :returns: The best documents first. Their score is BM25's, the similarity (of "euclidean" the distance, where
            less is better), or of the fusion the sum of 1 / (60 + position), with positions from 0, where text weighs
            a thousandth less, so that equal ranks are always ordered the same way.
        :raises ValueError: If neither text nor embedding is given, or the embedding has another dimension than those of
            the store, or `top_k` is less than 1.
        """
        if query is None and query_embedding is None:
            raise ValueError("query or query_embedding must be given")
        check_at_least(1, top_k=top_k)
        shard = self._shard
        searches: list[Any] = []
        if query is not None:
            searches.append(engine.TextQuery(CONTENT, searchable(query)))
        if query_embedding is not None and shard.embedding_dim is not None:
            shard.check(embedding_dim=len(query_embedding))
            searches.append(engine.Query.Nearest([float(number) for number in query_embedding], using=DENSE))
        if not searches:  # there are no embeddings yet
            return []
        matching = self._native(filters)
        ranking: dict[str, Any] = {"query": searches[0], "filter": matching}
        if len(searches) > 1:
            depth = max(candidates or 100, top_k)
            prefetches = [engine.Prefetch(depth, query=search, filter=matching) for search in searches]
            ranking = {"query": engine.Fusion.Rrf(RRF_K, RRF_WEIGHTS), "prefetches": prefetches}
        request = engine.QueryRequest(top_k, **ranking, with_payload=STORED, with_vector=return_embedding)
        return list(map(to_document, shard.engine.query(request)))

    def optimize(self) -> bool:
        """
        Merge the shard's segments and build its vector index (HNSW), which pays off past about 100,000 embeddings.

        Never done by itself. Minutes for a large shard; searches go on meanwhile, writes wait.

        :returns: Whether there was something to do.
        """
        shard = self._shard
        with shard.write_lock:
            return shard.engine.optimize()

    count_documents_async = _in_thread(count_documents)
    filter_documents_async = _in_thread(filter_documents)
    get_documents_by_id_async = _in_thread(get_documents_by_id)
    write_documents_async = _in_thread(write_documents)
    delete_documents_async = _in_thread(delete_documents)
    delete_by_filter_async = _in_thread(delete_by_filter)
    delete_all_documents_async = _in_thread(delete_all_documents)
    update_by_filter_async = _in_thread(update_by_filter)
    count_documents_by_filter_async = _in_thread(count_documents_by_filter)
    get_metadata_fields_info_async = _in_thread(get_metadata_fields_info)
    get_metadata_field_min_max_async = _in_thread(get_metadata_field_min_max)
    get_metadata_field_unique_values_async = _in_thread(get_metadata_field_unique_values)
    count_unique_metadata_by_filter_async = _in_thread(count_unique_metadata_by_filter)
    search_async = _in_thread(search)
    close_async = _in_thread(close)

    def _native(self, filters: dict[str, Any] | None) -> engine.Filter:
        """Translate a filter, or name the documents that match it where the engine cannot express it."""
        if not filters:
            return EVERYTHING
        if "operator" not in filters and "conditions" not in filters:
            raise ValueError(f"Invalid filter syntax in {filters}")
        check_filter(filters)
        shard = self._shard
        try:
            return translate(filters, shard)
        except NotNativeError:
            candidates = self._scroll(narrow(filters, shard), return_embedding=names_field(filters, "embedding"))
        try:
            matching: set[Any] = {point_id(found.id) for found in candidates if document_matches_filter(filters, found)}
        except TypeError as error:
            raise FilterError(f"Cannot compare the values of a document as {filters} asks") from error
        return engine.Filter(must=[engine.HasIdCondition(matching)])

    def _scroll(self, matching: engine.Filter, *, return_embedding: bool = True) -> list[Document]:
        return list(map(to_document, self._records(matching, return_embedding=return_embedding)))

    def _records(self, matching: engine.Filter, *, return_embedding: bool = True) -> list[engine.Record]:
        """Read what matches, in the order of writing."""
        request = engine.ScrollRequest(
            limit=sys.maxsize, filter=matching, with_payload=STORED, with_vector=return_embedding
        )
        records, _ = self._shard.engine.scroll(request)
        return sorted(records, key=_order)

    def _without_duplicates(self, documents: list[Document], policy: DuplicatePolicy) -> list[Document]:
        points: list[Any] = [*{point_id(document.id) for document in documents}]
        seen = {str(record.id).replace("-", "") for record in self._shard.engine.retrieve(points, False, False)}
        kept = []
        for document in documents:
            point = point_id(document.id)
            if point not in seen:
                seen.add(point)
                kept.append(document)
            elif policy == DuplicatePolicy.SKIP:
                logger.warning("ID '{document_id}' already exists", document_id=document.id)
            else:
                raise DuplicateDocumentError(f"ID '{document.id}' already exists.")
        return kept

    def _upsert(self, documents: list[Document], orders: Iterable[int] | None = None) -> None:
        """Write documents, at their places in the order of writing, or else at its end."""
        shard = self._shard
        normalized = self.similarity == "cosine"
        places = zip(documents, shard.order if orders is None else orders, strict=False)
        points = [to_point(document, order, normalized=normalized) for document, order in places]
        dimensions = {len(document.embedding) for document in documents if document.embedding is not None}
        if len(dimensions) > 1:
            raise ValueError(f"Embeddings must have one dimension, got {sorted(dimensions)}")
        for dimension in dimensions:
            shard.add_embeddings(dimension, self.similarity)
        for point in points:  # one by one costs the same as batches, which the engine would shuffle
            shard.update(engine.UpdateOperation.upsert_points([point]), 1)

    def _in_memory(self, filters: dict[str, Any] | None = None) -> InMemoryDocumentStore:
        """Copy ids and metadata to Haystack's own store, which knows what to tell about them."""
        store = InMemoryDocumentStore(shared=False)
        documents = self._scroll(self._native(filters), return_embedding=False)
        store.write_documents([Document(id=document.id, meta=document.meta) for document in documents])
        return store


def _order(record: engine.Record) -> int:
    return int((record.payload or {})[ORDER])
