"""
How long the embedded store takes: `python benchmarks/store.py [LEAVES]`, medians in milliseconds.

The leaves are synthetic: 20 words by Zipf's law, a random embedding of 384 numbers, the metadata of the data contract,
200 leaves a source. Haystack's store in memory does the same on few leaves, in the same run.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

import numpy as np
from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_adv_retrieval.calls import drive
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.stores import read_by_ids

FEW = 2_000
DIMENSION = 384
TOP = 50
FILTERS = {
    "no filter": None,
    "level == 2 (all)": {"field": "meta.level", "operator": "==", "value": 2},
    "team == 'sales' (a third)": {"field": "meta.team", "operator": "==", "value": "sales"},
    "year >= 2005 (half)": {"field": "meta.year", "operator": ">=", "value": 2005},
    "a source's leaves 20-59 (40)": {
        "operator": "AND",
        "conditions": [
            {"field": "meta.source_id", "operator": "==", "value": "source 3"},
            {"field": "meta.split_id", "operator": ">=", "value": 20},
            {"field": "meta.split_id", "operator": "<", "value": 60},
        ],
    },
}


def leaves(count: int) -> list[Document]:
    random = np.random.default_rng(0)
    odds = 1 / np.arange(1, 5_001)
    words = random.choice([f"word{number}" for number in range(5_000)], (count, 20), p=odds / odds.sum())
    vectors = random.normal(size=(count, DIMENSION))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return [leaf(number, " ".join(words[number]), vectors[number].tolist()) for number in range(count)]


def leaf(number: int, text: str, embedding: list[float]) -> Document:
    source, split = f"source {number // 200}", number % 200
    version = chunks.digest(source)
    meta = {
        chunks.UNIT: "leaf",
        chunks.SOURCE_ID: source,
        chunks.SOURCE_VERSION: version,
        chunks.LEVEL: 2,
        chunks.SPLIT_ID: split,
        chunks.START: split * 150,
        chunks.END: split * 150 + 150,
        chunks.PARENT_ID: chunks.chunk_id(source, version, 1, split // 10),
        chunks.PARENT_START: split // 10 * 1500,
        chunks.PARENT_END: split // 10 * 1500 + 1500,
        chunks.PAGE: 1,
        chunks.HEADINGS: f"Chapter > Section {split // 10}",
        chunks.LEAF_LEVEL: 2,
        chunks.LEAF_START: split,
        chunks.LEAF_END: split + 1,
        "year": 2000 + number // 200 % 10,
        "team": ("sales", "legal", "support")[number // 200 % 3],
    }
    return Document(id=chunks.chunk_id(source, version, 2, split), content=text, meta=meta, embedding=embedding)


def milliseconds(task: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times + 1):
        start = perf_counter()
        task()
        taken.append((perf_counter() - start) * 1000)
    return median(taken[1:] or taken)  # the first one warms up


def measure(
    store: QdrantEdgeDocumentStore | InMemoryDocumentStore, documents: list[Document], times: int
) -> Iterator[tuple[str, float]]:
    yield f"write, {len(documents)} leaves", milliseconds(lambda: store.write_documents(documents), 0)
    ids = [document.id for document in documents]
    vector, text = documents[17].embedding, "word5 word100 word321"
    yield "get 50 by id", milliseconds(lambda: drive(read_by_ids(store, ids[100:150])), times)
    yield "get 300 by id", milliseconds(lambda: drive(read_by_ids(store, ids[100:400])), times)
    for name, filters in FILTERS.items():
        asked = {"filters": filters, "top_k": TOP}
        if isinstance(store, InMemoryDocumentStore):
            searches = {
                "dense": lambda asked=asked: store.embedding_retrieval(vector, **asked),
                "bm25": lambda asked=asked: store.bm25_retrieval(text, **asked),
            }
        else:
            searches = {
                "dense": lambda asked=asked: store.search(None, vector, **asked),
                "bm25": lambda asked=asked: store.search(text, **asked),
                "hybrid": lambda asked=asked: store.search(text, vector, **asked),
            }
        for kind, search in searches.items():
            yield f"{kind} top {TOP}, {name}", milliseconds(search, times)


def main() -> None:
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    documents = leaves(many)
    columns = {}
    for name, count, times in ((f"embedded, {many}", many, 20), (f"embedded, {FEW}", FEW, 20)):
        with tempfile.TemporaryDirectory() as folder:
            store = QdrantEdgeDocumentStore(folder)
            columns[name] = dict(measure(store, documents[:count], times))
            store.close()
    memory = InMemoryDocumentStore(shared=False)
    columns[f"in memory, {FEW}"] = dict(measure(memory, documents[:FEW], 3))
    rows = [name for name in columns[f"embedded, {FEW}"] if not name.startswith("write")]
    print(f"{'':45}" + "".join(f"{column:>18}" for column in columns))
    print(f"{'write':45}" + "".join(f"{next(iter(column.values())):18.0f}" for column in columns.values()))
    for row in rows:
        values = (column.get(row) for column in columns.values())
        print(f"{row:45}" + "".join(f"{'-':>18}" if value is None else f"{value:18.2f}" for value in values))


if __name__ == "__main__":
    main()
