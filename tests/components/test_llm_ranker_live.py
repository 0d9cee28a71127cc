"""LLMRanker with a real chat model behind a real server, as `ADV_RETRIEVAL_TEST_LLM` says."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from haystack import Document
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.utils import Secret
from scripted_chat_server import Answer, ChatServer

from haystack_adv_retrieval.calls import drive
from haystack_adv_retrieval.components.llm_ranker import LLMRanker
from haystack_adv_retrieval.llm.asking import ask, read_json

URL = os.environ.get("ADV_RETRIEVAL_TEST_LLM", "")
pytestmark = [pytest.mark.llm, pytest.mark.skipif(not URL, reason="needs a chat server, see ADV_RETRIEVAL_TEST_LLM")]

QUERY = "Which grain is best for making malt?"
DOCUMENTS = [
    Document(id="rye", content="Rye bread is dense and keeps for a week.", score=0.9),
    Document(id="oats", content="Oats are eaten as porridge.", score=0.8),
    Document(id="barley", content="Barley is the best grain for making malt.", score=0.7),
    Document(id="boats", content="The ferry leaves at noon.", score=0.6),
]


def generator(**kwargs: Any) -> OpenAIChatGenerator:
    defaults: dict[str, Any] = {"api_key": Secret.from_token("none"), "api_base_url": URL, "model": "local"}
    return OpenAIChatGenerator(
        **defaults | {"generation_kwargs": {"temperature": 0, "max_tokens": 100}, "timeout": 600} | kwargs
    )


def ids(result: dict[str, Any]) -> list[str]:
    return [document.id for document in result["documents"]]


@pytest.mark.parametrize("strategy", ["listwise", "tournament", "pointwise"])
def test_every_strategy_runs_sync_and_async(strategy: Any) -> None:
    ranker = LLMRanker(generator(), strategy, num_rounds=1, timeout=600)
    result = ranker.run(QUERY, DOCUMENTS)
    assert sorted(ids(result)) == ["barley", "boats", "oats", "rye"]
    assert not result["report"]["fallback"]
    assert result["report"]["input_tokens"] > 50
    again = asyncio.run(ranker.run_async(QUERY, DOCUMENTS))
    assert not again["report"]["fallback"]
    assert sorted(ids(again)) == sorted(ids(result))


def test_structured_output_is_what_the_schema_says() -> None:
    labels = {"type": "array", "items": {"type": "integer", "enum": [7, 9]}, "minItems": 2, "maxItems": 2}
    schema = {
        "type": "object",
        "properties": {"labels": labels},
        "required": ["labels"],
        "additionalProperties": False,
    }
    reply = drive(ask(generator(), "Say anything.", read=read_json, schema=schema, timeout=600))
    assert (reply.outcome, list(reply.value or {})) == ("ok", ["labels"])
    assert set((reply.value or {})["labels"]) <= {7, 9}


def test_log_probabilities_make_the_scores() -> None:
    result = LLMRanker(generator(), "pointwise", timeout=600).run(QUERY, DOCUMENTS)
    scores = [document.score for document in result["documents"]]
    assert any(score not in (0, 1 / 3, 2 / 3, 1) for score in scores)
    assert all(score is not None and 0 <= score <= 1 for score in scores)


def test_a_server_killed_in_the_middle_gives_the_input_order(chat_server: ChatServer) -> None:
    def forward(body: dict[str, Any]) -> Answer:
        if len(chat_server.requests) > 1:
            chat_server.stop()
            return Answer(drop=True)
        reply = httpx.post(f"{URL}/chat/completions", json=body, timeout=600).json()
        return Answer(reply["choices"][0]["message"]["content"])

    chat_server.script(forward)
    ranker = LLMRanker(generator(api_base_url=chat_server.url), ranking_window=2, stride=1, timeout=120)
    start = time.monotonic()
    result = ranker.run(QUERY, DOCUMENTS)
    assert time.monotonic() - start < 120
    assert ids(result)[:2] == ["rye", "oats"]
    assert result["report"]["outcomes"]["failed"] == 2


def test_eight_rankings_at_once() -> None:
    ranker = LLMRanker(generator(), timeout=600)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda shift: ranker.run(QUERY, DOCUMENTS[shift:] + DOCUMENTS[:shift]), range(8)))
    assert all(sorted(ids(result)) == ["barley", "boats", "oats", "rye"] for result in results)
    assert not any(result["report"]["fallback"] for result in results)
