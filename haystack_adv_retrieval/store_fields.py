"""Reading from a document store which metadata fields its documents have, of which types and with which values."""

from collections.abc import Collection
from datetime import date
from typing import Any

from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.core.chunks import CHUNK_KEYS, RESULT_KEYS
from haystack_adv_retrieval.core.filter_schema import MetadataField

# What stores call the types.
_TYPES = {
    "keyword": "str",
    "text": "str",
    "int": "int",
    "integer": "int",
    "long": "int",
    "float": "float",
    "real": "float",
    "double": "float",
    "boolean": "bool",
    "bool": "bool",
}
_METHODS = ("get_metadata_fields_info", "get_metadata_field_unique_values", "get_metadata_field_min_max")


def schema_from_store(
    document_store: DocumentStore, *, names: Collection[str] | None = None, max_values: int = 50
) -> list[MetadataField]:
    """
    Describe the metadata fields of a store's documents.

    Text that always is an ISO date makes a "date". A list makes a "list[str]", with the operators that the store turns
    out to apply to its elements. Nested values and names that not every store can filter by are left out.

    :param document_store: Any store with the metadata methods that InMemory, Qdrant, Qdrant Edge and pgvector share.
    :param names: The fields wanted; None means all that the user brought, not those that this package writes.
    :param max_values: A text field with at most so many values is an enumeration of them.
    :returns: The fields.
    :raises ValueError: If the store lacks these methods.
    """
    return drive(read_fields(document_store, names=names, max_values=max_values))


async def schema_from_store_async(
    document_store: DocumentStore, *, names: Collection[str] | None = None, max_values: int = 50
) -> list[MetadataField]:
    """
    Describe the metadata fields of a store's documents, asynchronously.

    :param document_store: As for `schema_from_store`.
    :param names: As for `schema_from_store`.
    :param max_values: As for `schema_from_store`.
    :returns: The fields.
    :raises ValueError: If the store lacks these methods.
    """
    return await drive_async(read_fields(document_store, names=names, max_values=max_values))


def read_fields(
    document_store: DocumentStore, *, names: Collection[str] | None = None, max_values: int = 50
) -> Steps[list[MetadataField]]:
    """
    Describe the metadata fields of a store's documents, as steps for `drive`.

    :param document_store: As for `schema_from_store`.
    :param names: As for `schema_from_store`.
    :param max_values: As for `schema_from_store`.
    :returns: The fields.
    :raises ValueError: If the store lacks these methods.
    """
    missing = [method for method in _METHODS if not hasattr(document_store, method)]
    if missing:
        store = type(document_store).__name__
        raise ValueError(f"document_store: {store} lacks {missing}; describe its fields with metadata_fields")
    described: dict[str, dict[str, str]] = yield Call(document_store, "get_metadata_fields_info")
    fields = []
    for name in sorted(described):
        kind = _TYPES.get(described[name].get("type", ""))
        wanted = name in names if names is not None else name not in CHUNK_KEYS | RESULT_KEYS
        if kind and wanted and MetadataField.is_name(name):
            fields.append((yield from _read_field(document_store, name, kind, max_values)))
    return [field for field in fields if field]


def _read_field(document_store: DocumentStore, name: str, kind: str, max_values: int) -> Steps[MetadataField | None]:
    if kind == "bool":
        return MetadataField(name, kind)
    if kind == "str":
        asked = {"metadata_field": name, "size": max_values + 1}
        values, total = yield Call(document_store, "get_metadata_field_unique_values", asked)
        if any(isinstance(value, list) for value in values):
            return (yield from _read_list(document_store, name, values))
        if not all(isinstance(value, str) for value in values):
            return None
        if not all(map(_is_date, values)):
            return MetadataField(name, kind, values=sorted(values) if total <= max_values else ())
        kind = "date"
    ends = yield Call(document_store, "get_metadata_field_min_max", {"metadata_field": name})
    return MetadataField(name, kind, minimum=ends["min"], maximum=ends["max"])


def _read_list(document_store: DocumentStore, name: str, lists: list[Any]) -> Steps[MetadataField | None]:
    """Try whether the store finds a list by one of its elements."""
    elements = sorted({element for value in lists if isinstance(value, list) for element in value if element}, key=str)
    if not elements or not all(isinstance(element, str) for element in elements):
        return None
    filters = {"field": f"meta.{name}", "operator": "in", "value": elements[:1]}
    found = yield Call(document_store, "filter_documents", {"filters": filters})
    return MetadataField(name, "list[str]", operators=["in", "not in"] if found else [])


def _is_date(value: str) -> bool:
    try:
        date.fromisoformat(value[:10])
    except ValueError:
        return False
    return len(value) == 10 or value[10] in "T "
