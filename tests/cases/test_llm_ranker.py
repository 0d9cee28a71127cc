"""Cases that rankers elsewhere got wrong: the replies of a model and what must come of them."""

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
from haystack import Document
from haystack.dataclasses import ChatMessage
from scripted_chat_server import Answer, ChatServer

from haystack_adv_retrieval.components.llm_ranker import LLMRanker

PATH = Path(__file__).parent.parent / "data" / "cases" / "llm_ranker.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


class Nothing:
    """A chat generator that gives back nothing at all."""

    def run(self, messages: list[ChatMessage]) -> Any:  # noqa: ARG002
        return None


def document(row: dict[str, Any]) -> Document:
    row = dict(row)
    if parts := row.pop("content_gen", None):
        row["content"] = parts["prefix"] + parts["unit"] * parts["times"] + parts["suffix"]
    return Document(**row)


def answer(reply: dict[str, Any]) -> Answer:
    if "error" in reply:
        return Answer(status=int(reply["error"]))
    return Answer(reply.get("text", ""), delay=reply.get("sleep", 0.0))


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_case(case: dict[str, Any], chat_server: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    expect, replies = case["expect"], case["replies"]
    documents = [document(row) for row in case["documents"]]
    before = copy.deepcopy(documents)
    chat_server.script(*map(answer, replies or [{}]))
    generator = Nothing() if any("nothing" in reply for reply in replies) else chat_server.generator()
    ranker = LLMRanker(generator, **case["init"])

    start = time.monotonic()
    if "raises" in expect:
        with pytest.raises(RuntimeError, match=expect["raises"]):
            ranker.run(query=case["query"], documents=documents)
        return
    result = ranker.run(query=case["query"], documents=documents)

    ranked, report = result["documents"], result["report"]
    assert [each.id for each in ranked] == expect["result_ids"]
    assert time.monotonic() - start < expect.get("max_seconds", 30)
    assert report["fallback"] == expect.get("fallback_flagged", False)
    assert not expect.get("warned") or any(record.levelname == "WARNING" for record in caplog.records)
    assert report["calls"] == expect.get("llm_calls", report["calls"])
    if prompts := chat_server.prompts:
        assert len(prompts[0]) <= expect.get("prompt_chars_max", 10**6)
        assert prompts[0].count("<passage label=") == len(documents)

    assert documents == before
    given = {each.id: each for each in documents}
    for each in ranked:
        assert each is not given[each.id]
        assert (each.content, each.embedding) == (given[each.id].content, given[each.id].embedding)
        assert given[each.id].meta.items() <= each.meta.items()
