import pytest
from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from portable_stores import STORES, filled_store, postgres_uri  # noqa: F401

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


@pytest.fixture(scope="module", params=STORES)
def store(request, tmp_path_factory):
    return filled_store(request.param, request, DOCUMENTS, tmp_path_factory.mktemp("fields"))


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
        "year": {"type": "int", "minimum": 2020, "maximum": 2023},
    }
    elements = bool(store.filter_documents({"field": "meta.tags", "operator": "in", "value": ["red"]}))
    assert tags == {"type": "list[str]"} | ({"operators": ["in", "not in"]} if elements else {})
    assert elements == (type(store).__name__ == "QdrantDocumentStore")


def test_only_the_named_fields_are_read(store):
    assert list(plain(schema_from_store(store, names=["year", "source_id", "missing"]))) == ["source_id", "year"]


async def test_async_tells_the_same():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(DOCUMENTS)
    assert plain(await schema_from_store_async(store)) == plain(schema_from_store(store))


def test_an_empty_store_has_no_fields():
    assert schema_from_store(InMemoryDocumentStore(shared=False)) == []


def test_a_store_without_these_methods_is_refused_by_name():
    class Plain:
        pass

    with pytest.raises(ValueError, match=r"Plain lacks .*get_metadata_fields_info.*metadata_fields"):
        schema_from_store(Plain())
