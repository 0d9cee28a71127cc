"""Cases that compressors elsewhere got wrong: scores or replies of a model, and what must come of them."""

import copy
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from haystack import Document, Pipeline, component
from haystack.document_stores.in_memory import InMemoryDocumentStore
from scripted_chat_server import Answer, ChatServer
from scripted_ranker import ScriptedRanker
from trees import through_yaml

from haystack_adv_retrieval import Compressor

PATH = Path(__file__).parents[1] / "data" / "cases" / "compressor.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def document(row: dict[str, Any]) -> Document:
    row = dict(row)
    if parts := row.pop("content_gen", None):
        row["content"] = "".join(parts["unit"] % number for number in range(parts["times"]))
    return Document(**row)


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_case(case: dict[str, Any], chat_server: ChatServer) -> None:
    expect = case["expect"]
    documents = [document(row) for row in case["documents"]]
    before = copy.deepcopy(documents)
    init = {"scales": [], "lexical_weight": 0.0, "section_weight": 0.0, **case.get("init", {})}
    if "ratio" in case:
        init["max_length"] = int(len(documents[0].content) * case["ratio"])
    if case["method"] == "reranker":
        sentences = documents[0].content.count(".")
        init["ranker"] = ScriptedRanker(case.get("scores") or [0.5] * sentences)
    if "replies" in case:
        chat_server.script(*case["replies"])
        init["chat_generator"] = chat_server.generator()

    result = Compressor(case["method"], **init).run(query=case.get("query", "q"), documents=documents)

    kept, report = result["documents"], result["report"]
    if "contents" in expect:
        assert {one.id: one.content for one in kept} == expect["contents"]
    for id_, spans in expect.get("kept_spans", {}).items():
        assert {one.id: one.meta["kept_spans"] for one in kept}[id_] == spans
    if "max_ratio" in expect:
        given = len(documents[0].content)
        assert kept[0].content.count("Stone") >= 1
        assert len(kept[0].content) <= given
        allowed = max(expect["unit_length"], given * expect["max_ratio"])
        assert allowed - 2 * expect["unit_length"] <= len(kept[0].content) <= allowed
    assert report["calls"] == expect.get("calls", report["calls"])
    assert bool(report["fallbacks"]) == expect.get("fallback", False)
    assert documents == before
    given = {one.id: one for one in documents}
    for one in kept:
        assert given[one.id].meta.items() <= one.meta.items()
        for start, end in one.meta["kept_spans"]:
            assert given[one.id].content[start:end] in one.content


@pytest.mark.parametrize("is_async", [False, True])
async def test_ten_documents_three_at_a_time_of_which_one_fails(chat_server: ChatServer, is_async: bool) -> None:
    documents = [
        Document(id=f"d{n}", content=f"Stone no. {n}, which lies in the river, is grey.") for n in range(1, 11)
    ]

    def answer(body: dict[str, Any]) -> Answer:
        number = int(re.search(r"no\. (\d+)", body["messages"][-1]["content"])[1])
        if number == 4:
            return Answer("out of order", status=400)
        return Answer(f"Stone {number} is grey.", delay=0.3 if number == 1 else 0.05)

    chat_server.script(answer)
    compressor = Compressor("abstractive", chat_generator=chat_server.generator(), max_workers=3)
    start = time.monotonic()
    if is_async:
        result = await compressor.run_async(query="Which stones are grey?", documents=documents)
    else:
        result = compressor.run(query="Which stones are grey?", documents=documents)
    assert time.monotonic() - start < 30
    assert [one.id for one in result["documents"]] == [f"d{n}" for n in range(1, 11)]
    assert chat_server.peak == 3
    assert list(result["report"]["fallbacks"]) == ["d4"]
    for number, (given, one) in enumerate(zip(documents, result["documents"], strict=True), start=1):
        if number == 4:
            assert (one.content, one.meta["compression"]) == (given.content, "none")
        else:
            assert (one.content, one.meta["compression"]) == (f"Stone {number} is grey.", "abstractive")


def test_a_threshold_out_of_numpy_survives_yaml() -> None:
    restored = through_yaml(Compressor("embedding", threshold=np.float32(0.5), lexical_weight=np.float64(0.25)))
    assert (type(restored.threshold), restored.threshold, restored.lexical_weight) == (float, 0.5, 0.25)


@component
class ColdEmbedder:
    """An embedder that insists on being warmed up, and once is enough."""

    warm_ups = 0

    def __init__(self, of_documents: bool = False) -> None:
        self.of_documents = of_documents
        self.is_warm = False
        key, kind = ("documents", list[Document]) if of_documents else ("text", str)
        component.set_input_types(self, **{key: kind})
        component.set_output_types(
            self, **({"documents": list[Document]} if of_documents else {"embedding": list[float]})
        )

    def warm_up(self) -> None:
        type(self).warm_ups += 1
        self.is_warm = True

    def run(self, **inputs: Any) -> dict[str, Any]:
        if not self.is_warm:
            raise RuntimeError("not warmed up")
        if not self.of_documents:
            return {"embedding": [1.0, 0.0]}
        return {"documents": [Document(id=one.id, embedding=[1.0, float(one.id)]) for one in inputs["documents"]]}


@pytest.mark.parametrize("method", ["embedding", "index"])
def test_a_model_inside_is_warmed_up_once(method: Any) -> None:
    ColdEmbedder.warm_ups = 0
    pipeline = Pipeline()
    compressor = Compressor(
        method,
        document_store=InMemoryDocumentStore(),
        text_embedder=ColdEmbedder(),
        document_embedder=ColdEmbedder(of_documents=True),
        top_k=1,
    )
    pipeline.add_component("compressor", compressor)
    pipeline = Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_adv_retrieval", __name__])
    for _ in range(2):
        inputs = {"query": "q", "documents": [Document(content="One stone. Two stones. Three stones.")]}
        (one,) = pipeline.run({"compressor": inputs})["compressor"]["documents"]
        assert one.content == "One stone."
    assert ColdEmbedder.warm_ups == 2  # each of the two once
