"""Cases that retrieval by summaries elsewhere got wrong: what leads where, and what it costs."""

import json
from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline, component, default_to_dict
from haystack.components.embedders import MockDocumentEmbedder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from index_states import check_trees
from scripted_chat_server import Answer, ChatServer

from haystack_adv_retrieval import HierarchicalSplitter, RoutedRetriever, SectionSummarizer, SummaryRouter
from haystack_adv_retrieval.indexing.documents import index_documents

PATH = Path(__file__).parent.parent / "data" / "cases" / "summary_retrieval.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
UNIT = {"field": "meta.unit", "operator": "=="}


def cases(key: str) -> Any:
    chosen = [case for case in CASES if key in case]
    return pytest.mark.parametrize("case", chosen, ids=[case["case"] for case in chosen])


def index(store: Any, texts: dict[str, str], server: ChatServer, **meta: Any) -> None:
    index_documents(
        [Document(content=text, meta={"source_id": name, **meta}) for name, text in texts.items()],
        store,
        MockDocumentEmbedder(dimension=4),
        HierarchicalSplitter([12, 6], volatile_meta_keys=["seen"]),
        summarizer=SectionSummarizer(server.generator(), min_length=0, document_store=store),
    )


@cases("summaries")
def test_routing(case: dict[str, Any]) -> None:
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(
        [
            Document(id=each, content="the detail", meta={"unit": "leaf", "parent_id": section})
            for section, details in case["details"].items()
            for each in details
        ]
    )
    hits = [
        Document(id=hit["id"], content="s", score=hit["score"], meta={"unit": "summary", "parent_id": hit["of"]})
        for hit in case["summaries"]
    ]
    route = SummaryRouter(case["top_k"]).run(hits)
    assert [section.meta["parent_id"] for section in route.pop("sections")] == case["expect"]["sections"]
    retriever = InMemoryBM25Retriever(store, top_k=case["top_k"])
    found = RoutedRetriever(retriever, safety_net=0.0).run(**route, query="detail")["documents"]
    assert sorted(each.id for each in found) == case["expect"]["details"]


@cases("replies")
def test_search(case: dict[str, Any], chat_server: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    def reply(body: dict[str, Any]) -> Answer:
        prompt = body["messages"][0]["content"]
        return Answer(**next(answer for name, answer in case["replies"].items() if name in prompt))

    chat_server.script(reply)
    store, expect = InMemoryDocumentStore(shared=False), case["expect"]
    index(store, case["documents"], chat_server)
    check_trees(store)
    assert any(record.levelname == "WARNING" for record in caplog.records) == expect["warned"]

    def search(query: str, top_k: int) -> list[str]:
        summaries = InMemoryBM25Retriever(store, {**UNIT, "value": "summary"}).run(query=query)["documents"]
        route = SummaryRouter(top_k).run(summaries)
        assert route.pop("sections")
        found = RoutedRetriever(InMemoryBM25Retriever(store)).run(**route, query="text")["documents"]
        assert {each.meta["unit"] for each in found} == {"leaf"}
        return [each.meta["source_id"] for each in found]

    assert search(case["search"], 1)[0] == expect["first_source"]
    assert sorted(search(case["search"], 1)) == expect["reachable"]


@cases("steps")
def test_calls(case: dict[str, Any], chat_server: ChatServer) -> None:
    store, calls = InMemoryDocumentStore(shared=False), []
    for texts, seen in zip(case["steps"], case["volatile"], strict=True):
        chat_server.script("a summary")
        index(store, texts, chat_server, seen=seen)
        calls.append(len(chat_server.requests))
    assert calls == case["expect"]["calls"]


@component
class ColdModel:
    """A chat generator that insists on being warmed up."""

    warm_ups = 0

    def __init__(self) -> None:
        self.is_warm = False

    def warm_up(self) -> None:
        type(self).warm_ups += 1
        self.is_warm = True

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self)

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:  # noqa: ARG002
        if not self.is_warm:
            raise RuntimeError("not warmed up")
        return {"replies": [ChatMessage.from_assistant("a tree")]}


@cases("warm_ups")
def test_yaml(case: dict[str, Any]) -> None:
    ColdModel.warm_ups = 0
    pipeline = Pipeline()
    pipeline.add_component("splitter", HierarchicalSplitter([12, 6]))
    pipeline.add_component("summarizer", SectionSummarizer(ColdModel(), min_length=0, raise_on_failure=True))
    pipeline.connect("splitter.parents", "summarizer.parents")
    pipeline = Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_adv_retrieval", __name__])
    found = []
    for text in ("Alder text.", "Birch text."):
        result = pipeline.run({"splitter": {"documents": [Document(content=text)]}})
        found += [summary.content for summary in result["summarizer"]["summaries"]]
    assert (ColdModel.warm_ups, found) == (case["expect"]["warm_ups"], case["expect"]["summaries"])
