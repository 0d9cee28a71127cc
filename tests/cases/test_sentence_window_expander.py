import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from haystack import Document
from trees import store_of

from haystack_adv_retrieval import SentenceWindowExpander

PATH = Path(__file__).parents[1] / "data" / "cases" / "sentence_window_expander.jsonl"
CASES = [json.loads(line) for line in PATH.read_text().splitlines()]
KEYS = {"source": "source_id", "index": "split_id", "start": "split_idx_start"}


def chunk_of(given):
    meta = given.get("meta", {}) | {key: given[name] for name, key in KEYS.items() if name in given}
    return Document(id=given["id"], content=given["text"], meta=meta)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case, caplog):
    stored = {given["id"]: chunk_of(given) for given in case["chunks"]}
    found = [(stored[given["id"]], given) for given in case["hits"]]
    hits = [replace(one, meta=one.meta | given.get("meta", {}), score=given.get("score")) for one, given in found]
    expander = SentenceWindowExpander(store_of([] if case.get("store_empty") else stored.values()), **case["init"])
    with caplog.at_level(logging.WARNING):
        results = expander.run(documents=hits)["documents"]
    expected = case["expect"]
    assert [result.content for result in results] == expected["texts"]
    assert len(caplog.records) == expected.get("warned", False)
    if "scores" in expected:
        assert [result.score for result in results] == expected["scores"]
    assert expected.get("meta", {}).items() <= results[0].meta.items()
