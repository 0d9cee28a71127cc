"""Reading from a document store which metadata fields its documents have, of which types and with which values."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from typing import Any

from haystack import logging
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.core.chunks import RESERVED_KEYS, UNIT
from haystack_adv_retrieval.core.filter_schema import MetadataField, fold
from haystack_adv_retrieval.stores import scan

logger = logging.getLogger(__name__)

_METHODS = ("get_metadata_fields_info", "get_metadata_field_unique_values", "get_metadata_field_min_max")
_YEARS = (1000, 2999)
_FEW = 10  # documents, of which each may well be the only one of its kind
_DECIMAL = ("float", "real", "double")  # what stores call a field with decimals


def schema_from_store(
    document_store: DocumentStore, *, names: Collection[str] | None = None, max_values: int = 50
) -> list[MetadataField]:
    """
    Describe the metadata fields of a store's documents.

    In an index of this package only the records of the sources are read. Text that always is an ISO date makes a
    "date", and whole numbers such as 2023 in a field named "year" are years. A list makes a "list[str]", with the
    operators that the store turns out to apply to its elements. Nested values, fields of mixed types and names that not
    every store can filter by are left out; so is one that a question cannot tell from another, such as "Year" beside
    "year": of the two, the one with more values is kept.

    :param document_store: Any store; without source records, one with the metadata methods that InMemory, Qdrant,
        Qdrant Edge and pgvector share.
    :param names: The fields wanted; None means all that the user brought, not those that this package writes.
    :param max_values: A text field with at most so many values is an enumeration of them, unless it names documents:
        where there are more than ten, and each has a value of its own.
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
        known = name in names if names is not None else name not in RESERVED_KEYS
        return known and MetadataField.is_name(name)

    columns = yield Call(_Sources(document_store), "columns")
    columns = columns or (yield from _distinct_values(document_store, wanted, max_values))
    fields: dict[str, MetadataField] = {}
    for name in sorted(filter(wanted, columns), key=lambda name: (-len(columns[name].values), name)):
        if (field := (yield from _field(document_store, name, columns[name], max_values))) is None:
            continue
        if (kept := fields.setdefault(fold(name), field)) is not field:
            logger.warning(
                "No filter will use the metadata field {left_out}, as {kept} is called the same",
                left_out=name,
                kept=kept.name,
            )
    return sorted(fields.values(), key=lambda field: field.name)


@dataclass(frozen=True)
class _Column:
    """Values of a metadata field, whether these are all, and how many documents there are."""

    values: list[Any]
    complete: bool
    documents: int


@dataclass(frozen=True)
class _Sources:
    """The source records of an index of this package: all the user's metadata, and few documents."""

    document_store: DocumentStore

    def columns(self) -> dict[str, _Column]:
        values = defaultdict(list)
        for record in scan(self.document_store, {"field": f"meta.{UNIT}", "operator": "==", "value": "source"}):
            for name, value in record.meta.items():
                if value is not None:
                    values[name].append(value)
        return {name: _Column(column, True, len(column)) for name, column in values.items()}


def _distinct_values(
    document_store: DocumentStore, wanted: Callable[[str], bool], max_values: int
) -> Steps[dict[str, _Column]]:
    """Ask the store for the values of each field, or for the least and the greatest where there are many."""
    missing = [method for method in _METHODS if not hasattr(document_store, method)]
    if missing:
        store = type(document_store).__name__
        raise ValueError(f"document_store: {store} lacks {missing}; describe its fields with metadata_fields")
    columns = {}
    described: dict[str, dict[str, str]] = yield Call(document_store, "get_metadata_fields_info")
    documents = yield Call(document_store, "count_documents")
    for name in filter(wanted, described):
        asked = {"metadata_field": name, "size": max_values + 1}
        values, total = yield Call(document_store, "get_metadata_field_unique_values", asked)
        if not any(isinstance(value, list | dict) for value in values):
            ends = yield Call(document_store, "get_metadata_field_min_max", {"metadata_field": name})
            values = [*values, *(end for end in ends.values() if type(end) in map(type, values))]
        if described[name].get("type") in _DECIMAL:
            values = [float(value) for value in values]
        columns[name] = _Column(values, total <= max_values, documents)
    return columns


def _field(document_store: DocumentStore, name: str, column: _Column, max_values: int) -> Steps[MetadataField | None]:
    """Tell the type of a field from its values."""
    values = column.values
    types = {type(value) for value in values}
    if types == {bool}:
        return MetadataField(name, "bool")
    if types == {list}:
        texts = [element for elements in values for element in elements if element]
        if not texts or not all(isinstance(text, str) for text in texts):
            return None
        filters = {"field": f"meta.{name}", "operator": "in", "value": texts[:1]}
        found = yield Call(document_store, "filter_documents", {"filters": filters})
        operators = ["in", "not in"] if found else []
        return MetadataField(name, "list[str]", values=_listed(texts, column, max_values), operators=operators)
    if types == {str} and not all(map(_is_date, values)):
        return MetadataField(name, values=_listed(values, column, max_values))
    if not types or not (types <= {int, float} or types == {str}):
        return None
    kind = "date" if types == {str} else "float" if float in types else "int"
    low, high = min(values), max(values)
    year = kind == "int" and "year" in fold(name).split() and low >= _YEARS[0] and high <= _YEARS[1]
    return MetadataField(name, kind, unit="year" if year else "", minimum=low, maximum=high)


def _listed(texts: list[str], column: _Column, max_values: int) -> list[str]:
    """List the values of an enumeration; a field that names documents is none."""
    values = sorted(set(texts))
    names = len(values) == column.documents > _FEW
    return values if column.complete and len(values) <= max_values and not names else []


def _is_date(value: str) -> bool:
    """Tell an ISO date that sorts as text: Python reads "20240131" and "2024-W05-3" too."""
    try:
        day = date.fromisoformat(value[:10])
    except ValueError:
        return False
    return value[:10] == day.isoformat() and value[10:11] in ("", "T", " ")
