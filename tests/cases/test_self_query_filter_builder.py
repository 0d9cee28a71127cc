"""What went wrong with self-query elsewhere, as cases: tests/data/cases/self_query_filter_builder.jsonl."""

import json
import logging
from datetime import datetime
from pathlib import Path

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

from haystack_adv_retrieval.components.self_query_filter_builder import SelfQueryFilterBuilder
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore

ROWS = (Path(__file__).parent.parent / "data" / "cases" / "self_query_filter_builder.jsonl").read_text().splitlines()
CASES = [json.loads(row) for row in ROWS]
TYPES = {"year": "int", "rating": "float", "lang": "str", "published": "date", "tags": "list[str]", "in_stock": "bool"}
TYPES |= {"author": "str", "code": "str"}


def fields(aliases):
    languages = {"en": [], "de": [], "pt": []}
    for name, value in aliases.get("lang", {}).items():
        languages[value].append(name)
    return [
        {"name": name, "type": kind} | ({"values": languages} if name == "lang" else {}) for name, kind in TYPES.items()
    ]


def reply_text(given):
    """Write the reply in the component's own form."""
    if "reply_text" in given:
        return given["reply_text"]
    reply = {"query": given["reply"]["query"], "filter": given["reply"]["conditions"]}
    return given.get("wrap", "%s").replace("%s", json.dumps(reply))


def clock(given):
    times = given.get("now_sequence") or [given.get("now", "2031-05-14T10:00:00+00:00")] * 2
    return iter(map(datetime.fromisoformat, times)).__next__


def stores(names, documents, folder):
    made = {
        "InMemory": lambda: InMemoryDocumentStore(shared=False),
        "Qdrant": lambda: QdrantDocumentStore(":memory:", embedding_dim=2),
        "QdrantEdge": lambda: QdrantEdgeDocumentStore(str(folder)),
    }
    for name in [*names, "QdrantEdge"]:
        store = made[name]()
        store.write_documents([Document(id=d["id"] * 64, content=d["id"], meta=d["meta"]) for d in documents])
        yield store


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case, chat_server, caplog, tmp_path):
    given, expect = case["given"], case["expect"]
    chat_server.script(reply_text(given))
    builder = SelfQueryFilterBuilder(
        fields(given.get("aliases", {})),
        chat_server.generator(),
        method="llm",
        clock=clock(given),
        cache_size=0,
        raise_on_failure=given.get("init", {}).get("strict", False),
    )
    if "raises" in expect:
        with pytest.raises(ValueError, match=expect["message_mentions"][0]):
            builder.run(query=given["query"])
        return
    with caplog.at_level(logging.WARNING):
        results = [builder.run(query=given["query"]) for _ in range(given.get("calls", 1))]
    warned = any(record.levelno == logging.WARNING for record in caplog.records)
    found = [
        {document.content for document in store.filter_documents(results[0]["filters"] or None)}
        for store in (stores(given["stores"], given["stored"], tmp_path) if "stored" in given else ())
    ]
    check(expect, results[0], warned, found, chat_server.prompts)


def check(expect, result, warned, found, prompts):
    filters = result["filters"] or None
    checks = {
        "filters": lambda wanted: filters == wanted,
        "filters_any_of": lambda wanted: filters in wanted,
        "filters_equivalent": lambda wanted: filters == wanted,
        "filter_value_iso_day": lambda day: filters["value"] == day,
        "search_query": lambda text: result["query"] == text,
        "dropped_fields": lambda names: [d["condition"]["field"] for d in result["report"]["dropped"]] == names,
        "warned": lambda wanted: warned == wanted,
        "fallback_flagged": lambda _: bool(result["report"]["failure"]),
        "store_result_set": lambda ids: all(contents == set(ids) for contents in found),
        "same_in_all_stores": lambda _: all(contents == found[0] for contents in found),
        "prompt_contains_all": lambda texts: all(text in prompts[0] for text in texts),
        "prompt_contains_per_call": lambda calls: all(
            t in p for p, texts in zip(prompts, calls, strict=True) for t in texts
        ),
        "list_field_rule_documented": lambda _: "list[str]" in SelfQueryFilterBuilder.__doc__,
        "any_of": lambda groups: any(holds(group, checks) for group in groups),
        "no_raise": lambda _: True,
    }
    assert holds(expect, checks), result


def holds(expect, checks):
    return all(checks[name](wanted) for name, wanted in expect.items())


def test_sets_and_enumerations_become_plain_yaml():
    from enum import Enum

    class Kind(Enum):
        TEXT = "str"

    pipeline = Pipeline()
    field = {"name": "lang", "type": Kind.TEXT, "values": {"en", "de"}}
    pipeline.add_component("builder", SelfQueryFilterBuilder([field], method="rules"))
    text = pipeline.dumps()
    assert "!!python" not in text
    assert "!!set" not in text
    again = Pipeline.loads(text, allowed_modules=["haystack_adv_retrieval"])
    assert again.get_component("builder").metadata_fields == [{"name": "lang", "type": "str", "values": ["de", "en"]}]
