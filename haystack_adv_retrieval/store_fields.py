"""Reading from a document store which metadata fields its documents have, of which types and with which values."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from typing import Any

from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.core.chunks import CHUNK_KEYS, RESULT_KEYS, UNIT
from haystack_adv_retrieval.core.filter_schema import MetadataField
from haystack_adv_retrieval.stores import scan

_METHODS = ("get_metadata_fields_info", "get_metadata_field_unique_values", "get_metadata_field_min_max")
_DECIMAL = ("float", "real", "double")  # what stores call a field with decimals


def schema_from_store(
    document_store: DocumentStore, *, names: Collection[str] | None = None, max_values: int = 50
) -> list[MetadataField]:
    """
    Describe the metadata fields of a store's documents.

    In an index of this package only the records of the sources are read. Text that always is an ISO date makes a
    "date". A list makes a "list[str]", with the operators that the store turns out to apply to its elements. Nested
    values, fields of mixed types and names that not every store can filter by are left out.

    :param document_store: Any store; without source records, one with the metadata methods that InMemory, Qdrant,
        Qdrant Edge and pgvector share.
    :param names: The fields wanted; None means all that the user brought, not those that this package writes.
    :param max_values: A text field with at most so many values is an enumeration of them.
    :returns: The fields.
    :raises ValueError: If the store has neither.
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
    :raises ValueError: If the store has neither.
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
    :raises ValueError: If the store has neither.
    """

    def wanted(name: str) -> bool:
        known = name in names if names is not None else name not in CHUNK_KEYS | RESULT_KEYS
        return known and MetadataField.is_name(name)

    columns = yield Call(_Sources(document_store), "columns")
    columns = columns or (yield from _distinct_values(document_store, wanted, max_values))
    fields = []
    for name in sorted(filter(wanted, columns)):
        fields.append((yield from _field(document_store, name, columns[name], max_values)))
    return [field for field in fields if field]


@dataclass(frozen=True)
class _Sources:
    """The source records of an index of this package: all the user's metadata, and few documents."""

    document_store: DocumentStore

    def columns(self) -> dict[str, list[Any]]:
        columns = defaultdict(list)
        for record in scan(self.document_store, {"field": f"meta.{UNIT}", "operator": "==", "value": "source"}):
            for name, value in record.meta.items():
                if value is not None:
                    columns[name].append(value)
        return columns


def _distinct_values(
    document_store: DocumentStore, wanted: Callable[[str], bool], max_values: int
) -> Steps[dict[str, list[Any]]]:
    """Ask the store for the values of each field, or for the least and the greatest where there are many."""
    missing = [method for method in _METHODS if not hasattr(document_store, method)]
    if missing:
        store = type(document_store).__name__
        raise ValueError(f"document_store: {store} lacks {missing}; describe its fields with metadata_fields")
    columns = {}
    described: dict[str, dict[str, str]] = yield Call(document_store, "get_metadata_fields_info")
    for name in filter(wanted, described):
        asked = {"metadata_field": name, "size": max_values + 1}
        values, _ = yield Call(document_store, "get_metadata_field_unique_values", asked)
        if not any(isinstance(value, list | dict) for value in values):
            ends = yield Call(document_store, "get_metadata_field_min_max", {"metadata_field": name})
            values = [*values, *(end for end in ends.values() if type(end) in map(type, values))]
        columns[name] = [float(value) for value in values] if described[name].get("type") in _DECIMAL else values
    return columns


def _field(document_store: DocumentStore, name: str, values: list[Any], max_values: int) -> Steps[MetadataField | None]:
    """Tell the type of a field from its values."""
    types = {type(value) for value in values}
    if types == {list}:
        return (yield from _list_field(document_store, name, values))
    if types == {bool}:
        return MetadataField(name, "bool")
    dates = types == {str} and all(map(_is_date, values))
    if dates or (types and types <= {int, float}):
        kind = "date" if dates else "float" if float in types else "int"
        return MetadataField(name, kind, minimum=min(values), maximum=max(values))
    if types == {str}:
        distinct = sorted(set(values))
        return MetadataField(name, values=distinct if len(distinct) <= max_values else ())
    return None


def _list_field(document_store: DocumentStore, name: str, lists: list[list[Any]]) -> Steps[MetadataField | None]:
    """Try whether the store finds a list by one of its elements."""
    elements = [element for values in lists for element in values if element]
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
