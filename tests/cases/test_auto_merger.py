import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from haystack import Document
from trees import store_of, tree_of

from haystack_adv_retrieval import AutoMerger

PATH = Path(__file__).parents[1] / "data" / "cases" / "auto_merger.jsonl"
CASES = [json.loads(line) for line in PATH.read_text().splitlines()]
SIZE = 10  # characters a child


def chunks_of(tree):
    """Make the chunks of a tree twice: as our splitter describes them and as Haystack's does."""
    ours, theirs = {}, {}
    for place, (parent, children) in enumerate(tree.items()):
        source = {"source_id": parent, "source_version": "1", "leaf_level": 2, "leaf_count": len(children)}
        span = {"split_idx_start": 0, "split_idx_end": SIZE * len(children)}
        meta = {"level": 1, "leaf_start": 0, "leaf_end": len(children)}
        ours[parent] = Document(id=parent, content="x" * SIZE * len(children), meta=source | span | meta)
        theirs[parent] = Document(
            id=parent, content=parent, meta={"__level": 1, "__parent_id": f"root {place}", "__children_ids": children}
        )
        for number, child in enumerate(children):
            meta = {"level": 2, "split_id": number, "leaf_start": number, "leaf_end": number + 1, "parent_id": parent}
            own = {"split_idx_start": SIZE * number, "split_idx_end": SIZE * (number + 1)}
            parent_span = {"parent_idx_start": 0, "parent_idx_end": SIZE * len(children)}
            ours[child] = Document(id=child, content="x" * SIZE, meta=source | own | meta | parent_span)
            theirs[child] = Document(
                id=child, content=child, meta={"__level": 2, "__parent_id": parent, "__children_ids": []}
            )
    return ours, theirs


@pytest.mark.parametrize("kind", ["ours", "theirs"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case, kind, caplog):
    expected = case["expect"]
    if "raises" in expected:
        with pytest.raises(ValueError, match=expected["raises"]):
            AutoMerger(store_of([]), **case["init"])
        return
    documents = dict(zip(["ours", "theirs"], chunks_of(case["tree"]), strict=True))[kind]
    store = store_of(one for id_, one in documents.items() if id_ not in case.get("missing", []))
    merger = AutoMerger(store, max_level=1 if kind == "ours" else 2, **case["init"])
    hits = [replace(documents[id_], score=score) for id_, score in case["hits"]]
    with caplog.at_level(logging.WARNING):
        results = merger.run(documents=hits)["documents"]
    assert [result.id for result in results] == expected["ids"]
    assert len(caplog.records) == expected.get("warned", False)
    if "scores" in expected:
        assert [result.score for result in results] == expected["scores"]
    assert asyncio.run(merger.run_async(documents=hits))["documents"] == results


def test_merging_needs_only_plain_metadata():
    tree = tree_of("a b c d e f g h i j k l", block_sizes=[6, 3], leaf="chunk", split_overlap=1)
    plain = (str, int, float, bool)
    assert all(isinstance(value, plain) for one in tree.all for value in one.meta.values())
    [first, *_] = results = AutoMerger(store_of(tree.all)).run(documents=tree.leaves)["documents"]
    assert {result.id for result in results} == {parent.id for parent in tree.parents}
    assert first.content == tree.parents[0].content
