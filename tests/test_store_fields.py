import pytest
from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from portable_stores import STORES, filled_store

from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.store_fields import schema_from_store, schema_from_store_async

DOCUMENTS = [
    Document(
        id=f"{number:064x}",
        content=f"text {number}",
        meta={
            "kind": ["memo", "contract"][number % 2],
            "title": f"Title {number}",
            "year": 2020 + number,
            "rating": number + 0.5,
            "published": f"203{number}-03-0{number + 1}" + ["", "T09:30:00+00:00"][number % 2],
            "in_stock": number < 2,
            "tags": ["red", "blue"][: number % 2 + 1],
            "with space": "x",
            "nested": {"a": 1},
            "source_id": "s",
            "split_id": number,
        },
    )
    for number in range(4)
]


TITLES = [document.meta["title"] for document in DOCUMENTS]


@pytest.fixture(scope="module", params=STORES)
def store(request, tmp_path_factory):
    return filled_store(request.param, DOCUMENTS, tmp_path_factory.mktemp("fields"))


def plain(fields):
    return {field.name: {key: value for key, value in field.to_dict().items() if key != "name"} for field in fields}


def test_every_store_tells_the_same_fields(store):
    fields = plain(schema_from_store(store, max_values=3))
    tags = fields.pop("tags")
    assert fields == {
        "in_stock": {"type": "bool"},
        "kind": {"type": "str", "values": ["contract", "memo"]},
        "published": {"type": "date", "minimum": "2030-03-01", "maximum": "2033-03-04T09:30:00+00:00"},
        "rating": {"type": "float", "minimum": 0.5, "maximum": 3.5},
        "title": {"type": "str"},
        "year": {"type": "int", "unit": "year", "minimum": 2020, "maximum": 2023},
    }
    elements = bool(store.filter_documents({"field": "meta.tags", "operator": "in", "value": ["red"]}))
    assert tags == {"type": "list[str]", "values": ["blue", "red"]} | (
        {"operators": ["in", "not in"]} if elements else {}
    )
    assert elements == (type(store).__name__ == "QdrantDocumentStore")


def test_only_the_named_fields_are_read(store):
    assert list(plain(schema_from_store(store, names=["year", "source_id", "missing"]))) == ["source_id", "year"]


async def test_async_tells_the_same():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(DOCUMENTS)
    assert plain(await schema_from_store_async(store)) == plain(schema_from_store(store))


def test_in_an_index_only_the_source_records_are_read(tmp_path):
    store = QdrantEdgeDocumentStore(str(tmp_path))
    try:
        units = [("source", "memo", 3), ("leaf", "memo", 3), ("leaf", "hidden", "mixed")]
        for number, (unit, kind, pages) in enumerate(units):
            meta = {"unit": unit, "kind": kind, "pages": pages, "source_id": "s"}
            store.write_documents([Document(id=f"{number:064x}", content="x", meta=meta)])
        fields = plain(schema_from_store(store))
    finally:
        store.close()
    assert fields == {"kind": {"type": "str", "values": ["memo"]}, "pages": {"type": "int", "minimum": 3, "maximum": 3}}


def test_a_field_that_names_documents_is_no_enumeration(store):
    assert plain(schema_from_store(store, names=["title"])) == {"title": {"type": "str", "values": TITLES}}
    many = InMemoryDocumentStore(shared=False)
    many.write_documents(
        [Document(content=str(n), meta={"title": f"Title {n}", "kind": "ab"[n % 2]}) for n in range(12)]
    )
    assert plain(schema_from_store(many)) == {
        "kind": {"type": "str", "values": ["a", "b"]},
        "title": {"type": "str"},
    }


def test_fields_of_mixed_types_are_left_out():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(
        [Document(content=str(value), meta={"a": value, "unit": "source"}) for value in (1, "x", True)]
    )
    assert schema_from_store(store) == []


def test_only_dates_that_sort_as_text_are_dates():
    store = InMemoryDocumentStore(shared=False)
    meta = {"day": "2024-01-31", "moment": "2024-01-31 09:30", "digits": "20240131", "week": "2024-W05-3"}
    store.write_documents([Document(content="x", meta={**meta, "unit": "source"})])
    assert {field.name: field.type for field in schema_from_store(store)} == {
        "day": "date",
        "moment": "date",
        "digits": "str",
        "week": "str",
    }


def test_of_names_that_are_spelt_alike_the_more_frequent_is_kept(caplog):
    mixed = InMemoryDocumentStore(shared=False)
    metas = [{"year": 2024, "doc-type": "memo"}, {"year": 2025, "doc_type": "memo"}, {"Year": 2023}, {"DOC_TYPE": "x"}]
    metas[1] |= {"DOC_TYPE": "letter"}
    mixed.write_documents([Document(content=str(n), meta=m | {"unit": "source"}) for n, m in enumerate(metas)])
    assert [field.name for field in schema_from_store(mixed)] == ["DOC_TYPE", "year"]
    assert [record.getMessage() for record in caplog.records] == [
        "No filter will use the metadata field Year, as year is called the same",
        "No filter will use the metadata field doc-type, as DOC_TYPE is called the same",
        "No filter will use the metadata field doc_type, as DOC_TYPE is called the same",
    ]


def test_an_empty_store_has_no_fields():
    assert schema_from_store(InMemoryDocumentStore(shared=False)) == []


def test_a_store_without_these_methods_is_refused_by_name():
    class Plain:
        def filter_documents(self, filters):
            return [] if filters else None

    with pytest.raises(ValueError, match=r"Plain lacks .*get_metadata_fields_info.*metadata_fields"):
        schema_from_store(Plain())


def test_a_field_may_have_the_name_of_what_a_ranker_puts_on_results():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(
        [Document(content="a", meta={"rank": 1, "level": 0}), Document(content="b", meta={"rank": 2})]
    )
    assert plain(schema_from_store(store)) == {"rank": {"type": "int", "minimum": 1, "maximum": 2}}
