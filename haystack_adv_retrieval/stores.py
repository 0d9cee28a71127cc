"""What document stores differ in: reading by ids, and filters that all of them read alike."""

from collections.abc import Iterable
from typing import Any

from haystack import Document
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async

BATCH_SIZE = 1000


def read_by_ids(document_store: DocumentStore, ids: Iterable[str]) -> Steps[dict[str, Document]]:
    """
    Read documents by their ids, as steps for `drive`.

    Uses the store's own `get_documents_by_id` where there is one and a filter on `id` elsewhere, in batches of
    `BATCH_SIZE`. No ids means no call: several stores take an empty `in` for "everything".

    :param document_store: Any document store.
    :param ids: The ids; repeated ones are read once.
    :returns: The documents that were found, by id.
    """
    wanted = list(dict.fromkeys(ids))
    found: dict[str, Document] = {}
    for start in range(0, len(wanted), BATCH_SIZE):
        batch = wanted[start : start + BATCH_SIZE]
        if hasattr(document_store, "get_documents_by_id"):
            call = Call(document_store, "get_documents_by_id", {"ids": batch})
        else:
            filters = {"field": "id", "operator": "in", "value": batch}
            call = Call(document_store, "filter_documents", {"filters": filters})
        documents: list[Document] = yield call
        found.update((document.id, document) for document in documents)
    return found


def fetch(document_store: DocumentStore, ids: Iterable[str]) -> dict[str, Document]:
    """
    Read documents by their ids.

    :param document_store: Any document store.
    :param ids: The ids; repeated ones are read once.
    :returns: The documents that were found, by id.
    """
    return drive(read_by_ids(document_store, ids))


async def fetch_async(document_store: DocumentStore, ids: Iterable[str]) -> dict[str, Document]:
    """
    Read documents by their ids, asynchronously.

    :param document_store: Any document store.
    :param ids: The ids; repeated ones are read once.
    :returns: The documents that were found, by id.
    """
    return await drive_async(read_by_ids(document_store, ids))


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
