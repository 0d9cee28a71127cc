import json
from pathlib import Path

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.in_memory import InMemoryDocumentStore
from trees import store_of, through_yaml

from haystack_adv_retrieval import ParentExpander

PATH = Path(__file__).parents[1] / "data" / "cases" / "parent_expander.jsonl"
CASES = [json.loads(line) for line in PATH.read_text().splitlines()]


def hit_of(given):
    meta = given.get("meta", {}) | ({"parent_id": given["parent"]} if "parent" in given else {})
    return Document(id=given["id"], content=f"Text of {given['id']}.", meta=meta, score=given["score"])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case):
    store = store_of(Document(**{"content": "P"} | parent) for parent in case["parents"])
    expander = ParentExpander(store, **case.get("init", {}))
    hits, expected = [hit_of(given) for given in case["hits"]], case["expect"]
    if "raises" in expected:
        with pytest.raises(ValueError, match=expected["raises"]):
            expander.run(documents=hits)
        return
    results = expander.run(documents=hits)["documents"]
    assert [result.id for result in results] == expected["ids"]
    if "scores" in expected:
        assert [result.score for result in results] == expected["scores"]


def test_keys_that_are_given_as_a_tuple_survive_yaml():
    restored = through_yaml(ParentExpander(InMemoryDocumentStore(), parent_id_meta_key=("parent", "mother")))
    assert restored.parent_id_meta_key == ["parent", "mother"]


def test_a_file_without_the_document_store_is_refused_by_its_name():
    pipeline = Pipeline()
    pipeline.add_component("expander", ParentExpander(InMemoryDocumentStore()))
    settings = pipeline.to_dict()
    del settings["components"]["expander"]["init_parameters"]["document_store"]
    with pytest.raises(Exception, match="document_store") as caught:
        Pipeline.from_dict(settings)
    assert "expander" in str(caught.value)
