"""Cases that incremental indexing elsewhere got wrong: what is indexed in steps and what must be in the index then."""

import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from haystack import Document
from haystack.components.embedders import MockDocumentEmbedder
from haystack.document_stores.in_memory import InMemoryDocumentStore
from index_states import check_trees, sources_in, texts_in, units_in
from killed_indexer import SectionTitles

from haystack_adv_retrieval import HierarchicalSplitter, QdrantEdgeDocumentStore
from haystack_adv_retrieval.components import index_diff, index_writer
from haystack_adv_retrieval.indexing.documents import IndexReport, delete_sources, index_documents
from haystack_adv_retrieval.indexing.maintenance import PruneReport, prune

PATH = Path(__file__).parent.parent / "data" / "cases" / "index_sync.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def watched(kind: type) -> type:
    """A kind of store that fails on demand, counts what is written, and shows itself after each change."""

    class WatchedStore(kind):
        written = 0
        fails = False
        reversed = False
        after_change: Callable[[], None] = staticmethod(lambda: None)

        def write_documents(self, documents: list[Document], *args: Any, **kwargs: Any) -> int:
            if self.fails:
                raise OSError("disk full")
            self.written += len({document.id for document in documents} - self.records)
            count = super().write_documents(documents, *args, **kwargs)
            self.after_change()
            return count

        def delete_documents(self, *args: Any, **kwargs: Any) -> None:
            super().delete_documents(*args, **kwargs)
            self.after_change()

        def filter_documents(self, *args: Any, **kwargs: Any) -> list[Document]:
            return super().filter_documents(*args, **kwargs)[:: -1 if self.reversed else 1]

        def get_documents_by_id(self, ids: list[str]) -> list[Document]:
            found = {document.id: document for document in self.filter_documents()}
            return [found[each] for each in (ids[::-1] if self.reversed else ids) if each in found]

        @property
        def records(self) -> set[str]:
            return {record.id for record in units_in(self, "source")}

    return WatchedStore


class MoodyEmbedder:
    """Fails for a whole batch if one text in it is not to its liking."""

    model = "moody"

    def __init__(self, fails_on: str | None) -> None:
        self.fails_on = fails_on

    def run(self, documents: list[Document]) -> dict[str, Any]:
        if any(document.content == self.fails_on for document in documents):
            raise ValueError(f"cannot embed {self.fails_on}")
        return MockDocumentEmbedder(dimension=4).run(documents)


@pytest.fixture(params=["memory", "embedded"])
def store(request: pytest.FixtureRequest, memory_path: Path) -> Any:
    if request.param == "memory":
        yield watched(InMemoryDocumentStore)(shared=False)
    else:
        embedded = watched(QdrantEdgeDocumentStore)(str(memory_path))
        yield embedded
        embedded.close()


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_case(case: dict[str, Any], store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expect = case["expect"]
    others = [Document(**other) for other in case.get("others", [])]
    store.write_documents(others)
    store.reversed = case.get("reversed", False)
    if "batch_size" in case:
        for module in (index_diff, index_writer):
            monkeypatch.setattr(module, "BATCH_SIZE", case["batch_size"])
        monkeypatch.setattr("haystack_adv_retrieval.stores.BATCH_SIZE", case["batch_size"])

    reports, written, vanished, sources = [], [], [], []
    for number, step in enumerate(case["steps"]):
        before = set(texts_in(store))
        missing: set[str] = set()
        store.written = 0
        store.fails = step.get("store_fails", False)
        if number:
            store.after_change = lambda missing=missing: missing.update(
                set(expect.get("never_missing", ())) - set(texts_in(store))
            )
        reports.append(perform(step, case, store))
        assert not missing
        written.append(store.written)
        vanished.append(sorted(before - set(texts_in(store))))
        sources.append(sources_in(store))
        if not store.fails:
            check_trees(type("Ours", (), {"filter_documents": lambda _self: ours(store)})())

    found = {
        "embedded": [report.leaves_embedded for report in reports],
        "reused": [report.leaves_reused for report in reports],
        "changed": [report.added + report.updated for report in reports],
        "deleted": [report.deleted for report in reports],
        "failed": [[*report.failures] for report in reports],
        "written": written,
        "vanished": vanished,
        "sources_by_step": sources,
        "sources": sources[-1],
        "texts": {source: texts_in(store, source) for source in expect.get("texts", ())},
    }
    assert {key: value for key, value in found.items() if key in expect} == {
        key: value for key, value in expect.items() if key in found
    }
    for source, meta in expect.get("meta", {}).items():
        chunks = [document for document in ours(store) if document.meta["source_id"] == source]
        assert {document.meta["unit"] for document in chunks} == {"source", "block", "leaf"}
        assert all(document.meta.items() >= meta.items() for document in chunks)
    assert not any(expect.get("never_found", "\0") in (document.content or "") for document in ours(store))
    assert {other.id for other in others} <= {document.id for document in store.filter_documents()}
    assert prune(store) == PruneReport()


def perform(step: dict[str, Any], case: dict[str, Any], store: Any) -> IndexReport:
    if "delete" in step:
        assert delete_sources(store, step["delete"]) == step["delete"]
        return IndexReport()
    documents = []
    for source_id, given in step["documents"].items():
        row = {"content": given} if isinstance(given, str) else given
        documents.append(Document(content=row["content"], meta={"source_id": source_id, **row.get("meta", {})}))
    return index_documents(
        documents,
        store,
        MoodyEmbedder(step.get("embedder_fails_on")),
        HierarchicalSplitter(case.get("block_sizes", [12, 6]), namespace=step.get("namespace")),
        summarizer=SectionTitles() if case.get("summaries") else None,
        delete_missing=step.get("delete_missing", False),
    )


def ours(store: Any) -> list[Document]:
    return [document for document in store.filter_documents() if "source_id" in document.meta]


def test_two_runs_at_a_time_end_as_one_of_them(store: Any) -> None:
    def run(version: str) -> None:
        documents = [Document(content=version, meta={"source_id": name}) for name in "AB"]
        index_documents(documents, store, MockDocumentEmbedder(dimension=4), HierarchicalSplitter([12, 6]))

    for _ in range(3):
        runs = [Thread(target=run, args=(version,)) for version in ("v1", "v2")]
        for thread in runs:
            thread.start()
        for thread in runs:
            thread.join()
        assert sources_in(store) == ["A", "B"]
        assert texts_in(store) in (["v1", "v1"], ["v2", "v2"])
        assert prune(store) == PruneReport()
