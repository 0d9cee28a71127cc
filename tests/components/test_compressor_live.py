"""Compressor with a real chat model behind a real server, as `ADV_RETRIEVAL_TEST_LLM` says."""

import os

import pytest
from haystack import Document
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.utils import Secret

from haystack_adv_retrieval import Compressor
from haystack_adv_retrieval.core.grounding import unsupported

URL = os.environ.get("ADV_RETRIEVAL_TEST_LLM", "")
pytestmark = [pytest.mark.llm, pytest.mark.skipif(not URL, reason="needs a chat server, see ADV_RETRIEVAL_TEST_LLM")]

QUERY = "How long do refunds take?"
DOCUMENTS = [
    Document(id="refunds", content="Ferns like shade. Refunds take 14 days. They are paid by bank. Moss holds water."),
    Document(id="weir", content="The weir was built in 1911. It is 40 m long. Trout live there."),
]


def generator() -> OpenAIChatGenerator:
    kwargs = {"temperature": 0, "max_tokens": 80}
    key = Secret.from_token("none")
    return OpenAIChatGenerator(api_key=key, api_base_url=URL, model="local", generation_kwargs=kwargs, timeout=600)


def test_what_a_model_chooses_is_verbatim() -> None:
    result = Compressor("llm", chat_generator=generator(), timeout=600, max_workers=1).run(QUERY, DOCUMENTS)
    sources = {one.id: one.content for one in DOCUMENTS}
    assert result["report"]["calls"] >= len(DOCUMENTS)
    for one in result["documents"]:
        pieces = [sources[one.id][start:end] for start, end in one.meta["kept_spans"]]
        assert " ".join(pieces).split() == [word for word in one.content.split() if word != "…"]


def test_a_summary_says_nothing_that_its_source_does_not() -> None:
    compressor = Compressor(
        "abstractive", chat_generator=generator(), timeout=600, max_workers=1, drop_irrelevant=False
    )
    result = compressor.run(QUERY, DOCUMENTS)
    assert [one.id for one in result["documents"]] == ["refunds", "weir"]
    for one, source in zip(result["documents"], DOCUMENTS, strict=True):
        assert unsupported(one.content, source.content) == []
        assert len(one.content) <= len(source.content)
