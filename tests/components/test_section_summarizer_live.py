"""SectionSummarizer with a real chat model behind a real server, as `ADV_RETRIEVAL_TEST_LLM` says."""

import os
from typing import Any

import pytest
from haystack import Document
from haystack.components.embedders import MockDocumentEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret
from index_states import check_trees, units_in

from haystack_adv_retrieval import HierarchicalSplitter, SectionSummarizer
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.indexing.documents import index_documents

URL = os.environ.get("ADV_RETRIEVAL_TEST_LLM", "")
pytestmark = [pytest.mark.llm, pytest.mark.skipif(not URL, reason="needs a chat server, see ADV_RETRIEVAL_TEST_LLM")]

TEXT = """\
# Refunds

Refunds are paid to the card within fourteen days. They need a receipt. Without a receipt there is store credit.

# Badges

A lost badge is reported to the front desk on the same day. The desk blocks it at once. A new one costs five euros.
"""


def test_sections_are_summarised_by_the_model_and_once() -> None:
    generator = OpenAIChatGenerator(
        api_key=Secret.from_token("none"),
        api_base_url=URL,
        model="local",
        timeout=600,
        generation_kwargs={"temperature": 0, "max_tokens": 80},
    )
    store = InMemoryDocumentStore(shared=False)
    summarizer = SectionSummarizer(generator, sentences=1, min_length=5, document_store=store, timeout=600)
    arguments: dict[str, Any] = {
        "documents": [Document(content=TEXT, meta={"source_id": "handbook"})],
        "document_store": store,
        "embedder": MockDocumentEmbedder(dimension=4),
        "splitter": HierarchicalSplitter([30, 15], leaf="sentence"),
        "summarizer": summarizer,
    }
    assert index_documents(**arguments).failures == {}
    check_trees(store)
    summaries = {summary.meta[chunks.HEADINGS]: summary for summary in units_in(store, "summary")}
    assert {summary.meta[chunks.SUMMARY_METHOD] for summary in summaries.values()} == {"llm"}
    assert "refund" in (summaries["Refunds"].content or "").lower()
    assert "badge" in (summaries["Badges"].content or "").lower()
    assert index_documents(**arguments).skipped == 1
