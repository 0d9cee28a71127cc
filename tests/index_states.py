"""What an index holds, and whether it holds together."""

from typing import Any

from haystack import Document
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.core import chunks


def state_of(store: DocumentStore) -> dict[str, Any]:
    """Everything in a store by id, but not when it was written."""
    return {
        document.id: (
            document.content,
            {key: value for key, value in document.meta.items() if key != chunks.INDEXED_AT},
            document.embedding,
        )
        for document in store.filter_documents()
    }


def check_trees(store: DocumentStore) -> None:
    """Every leaf and summary has the parent that it is of, and every version that a record names is complete."""
    stored = {document.id: document for document in store.filter_documents()}
    for document in stored.values():
        if document.meta[chunks.UNIT] in ("leaf", "summary"):
            parent = stored[document.meta[chunks.PARENT_ID]]
            assert parent.meta[chunks.SOURCE_VERSION] == document.meta[chunks.SOURCE_VERSION]
        if document.meta[chunks.UNIT] == "leaf":
            start = document.meta[chunks.START] - parent.meta[chunks.START]
            assert parent.content[start : start + len(document.content)] == document.content
        if document.meta[chunks.UNIT] == "source" and chunks.SOURCE_VERSION in document.meta:
            searched, blocks = chunks.version_ids(document.meta)
            leaves = searched[len(searched) - document.meta[chunks.LEAF_END] :]
            assert all(stored[leaf].embedding for leaf in leaves)
            assert all(block in stored for block in blocks)


def sources_in(store: DocumentStore) -> list[str]:
    return sorted(each.meta[chunks.SOURCE_ID] for each in units_in(store, "source"))


def texts_in(store: DocumentStore, source_id: str | None = None) -> list[str]:
    """The texts of the leaves, of one source in order."""
    leaves = sorted(units_in(store, "leaf"), key=lambda leaf: (leaf.meta[chunks.SOURCE_ID], leaf.meta[chunks.SPLIT_ID]))
    return [leaf.content.strip() for leaf in leaves if source_id in (None, leaf.meta[chunks.SOURCE_ID])]


def units_in(store: DocumentStore, unit: str) -> list[Document]:
    return store.filter_documents({"field": "meta.unit", "operator": "==", "value": unit})
