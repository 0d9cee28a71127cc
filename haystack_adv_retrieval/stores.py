"""What document stores differ in: reading by ids, deleting by filter, taking turns, and filters that all read alike."""

import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from haystack import Document
from haystack.document_stores.types import DocumentStore, DuplicatePolicy

from haystack_adv_retrieval.calls import Call, Steps, pause

BATCH_SIZE = 1000


def read_by_ids(
    document_store: DocumentStore, ids: Iterable[str], *, embeddings: bool = True
) -> Steps[dict[str, Document]]:
    """
    Read documents by their ids, as steps for `drive`.

    Uses the store's own `get_documents_by_id` where there is one and a filter on `id` elsewhere, in batches of
    `BATCH_SIZE`. No ids means no call: several stores take an empty `in` for "everything".

    :param document_store: Any document store.
    :param ids: The ids; repeated ones are read once.
    :param embeddings: Whether embeddings are needed; otherwise a store that can leaves them out.
    :returns: The documents that were found, by id.
    """
    wanted = list(dict.fromkeys(ids))
    found: dict[str, Document] = {}
    for start in range(0, len(wanted), BATCH_SIZE):
        documents: list[Document] = yield _reading(document_store, wanted[start : start + BATCH_SIZE], embeddings)
        found.update((document.id, document) for document in documents)
    return found


def _reading(document_store: DocumentStore, ids: list[str], embeddings: bool) -> Call:
    by_id = getattr(document_store, "get_documents_by_id", None)
    if by_id is None:
        return Call(document_store, "filter_documents", {"filters": {"field": "id", "operator": "in", "value": ids}})
    can_leave_out = not embeddings and "return_embedding" in inspect.signature(by_id).parameters
    options = {"return_embedding": False} if can_leave_out else {}
    return Call(document_store, "get_documents_by_id", {"ids": ids, **options})


def both(*filters: dict[str, Any] | None) -> dict[str, Any] | None:
    """
    Combine filters so that a document has to satisfy all of them.

    The filters stay whole inside one outer AND, so none can loosen another, as merging them by field could.

    :param filters: Haystack filters; None and empty ones ask for nothing.
    :returns: One filter, or None if none asks for anything.
    """
    given = [part for part in filters if part]
    if len(given) <= 1:
        return given[0] if given else None
    return {"operator": "AND", "conditions": given}


def scan(document_store: DocumentStore, filters: dict[str, Any] | None) -> Iterator[Document]:
    """
    Read documents one after another.

    :param document_store: Any document store. Where it has a method `scan_documents`, memory does not grow with the
        number of documents, and embeddings are left out.
    :param filters: Which documents.
    :returns: The documents, in any order.
    """
    if hasattr(document_store, "scan_documents"):
        yield from document_store.scan_documents(filters)
    else:
        yield from document_store.filter_documents(filters)


def overwrite(document_store: DocumentStore, documents: Sequence[Document]) -> Steps[None]:
    """
    Write documents over those with the same ids, in batches and in order, as steps for `drive`.

    :param document_store: Any document store.
    :param documents: The documents.
    """
    for start in range(0, len(documents), BATCH_SIZE):
        batch = list(documents[start : start + BATCH_SIZE])
        yield Call(document_store, "write_documents", {"documents": batch, "policy": DuplicatePolicy.OVERWRITE})


def delete_by_ids(document_store: DocumentStore, ids: Sequence[str]) -> Steps[None]:
    """
    Delete documents by their ids, in batches and in order, as steps for `drive`.

    :param document_store: Any document store.
    :param ids: The ids; unknown ones are ignored.
    """
    for start in range(0, len(ids), BATCH_SIZE):
        yield Call(document_store, "delete_documents", {"document_ids": list(ids[start : start + BATCH_SIZE])})


def delete_matching(document_store: DocumentStore, filters: dict[str, Any]) -> Steps[None]:
    """
    Delete the documents that match a filter, as steps for `drive`.

    :param document_store: Any document store.
    :param filters: Which documents.
    """
    if hasattr(document_store, "delete_by_filter"):
        yield Call(document_store, "delete_by_filter", {"filters": filters})
        return
    documents: list[Document] = yield Call(document_store, "filter_documents", {"filters": filters})
    if documents:
        yield Call(document_store, "delete_documents", {"document_ids": [document.id for document in documents]})


def exclusive(document_store: DocumentStore) -> Steps[ExitStack]:
    """
    Wait until no one else in this process changes the index, as steps for `drive`. Whoever came first is next.

    Stores with the same settings share one queue. Other processes are not held off.

    :param document_store: Any document store.
    :returns: A context manager that lets the next one in on exit.
    """
    queue = _queues.setdefault(_identity(document_store), [])
    turn = object()
    queue.append(turn)
    left = ExitStack()
    left.callback(queue.remove, turn)
    with left:
        while before := queue.index(turn):
            yield pause(0.02 * before)  # unlike a lock, it can be cancelled and costs no thread in async code
        return left.pop_all()


def _identity(document_store: DocumentStore) -> str:
    """Name the place where a store keeps its documents."""
    folder = getattr(document_store, "folder", None)
    if isinstance(folder, str):
        return folder
    try:
        return json.dumps(document_store.to_dict(), sort_keys=True, default=str)
    except ValueError:  # a secret that may not be written down
        return f"{type(document_store).__name__} {id(document_store)}"


# By index, who is changing it and who waits, in order of arrival.
_queues: dict[str, list[object]] = {}
