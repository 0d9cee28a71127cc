import json
import socket
from pathlib import Path

import pytest
import regex
from haystack import Document, Pipeline
from trees import through_yaml

from haystack_adv_retrieval import HierarchicalSplitter
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.sentences import sentence_spans

PATH = Path(__file__).parents[1] / "data" / "cases" / "hierarchical_splitter.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def document_of(given):
    content = given["content"] if "content" in given else given.get("prefix", "") + given["unit"] * given["times"]
    return Document(id=given["id"], content=content, meta=given.get("meta", {}))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case):
    if "sentences_of" in case:
        text = case["sentences_of"]
        assert "".join(span.text(text) for span in sentence_spans(text)) == text
        return
    expected = case["expect"]
    if "raises" in expected:
        with pytest.raises(ValueError, match=".*".join(expected["raises"])):
            HierarchicalSplitter(**case["init"])
        return
    documents = [document_of(given) for given in case["documents"]]
    result = HierarchicalSplitter(**case["init"]).run(documents=documents)
    check_every_chunk(result, {document.id: document.content or "" for document in documents})
    check(result["documents"], expected)


def check_every_chunk(result, texts):
    """What every case expects: exact spans of the source, ids of their own, nothing lost, nothing torn."""
    nodes = [*result["documents"], *result["parents"], *result["sources"]]
    assert len({node.id for node in nodes}) == len(nodes)
    parents = {parent.id: parent for parent in result["parents"]}
    for source_id, text in texts.items():
        inside = {cut for match in regex.finditer(r"\X", text) for cut in range(match.start() + 1, match.end())}
        unseen = {position for position, character in enumerate(text) if not character.isspace()}
        for chunk in [*result["parents"], *result["documents"]]:
            if chunk.meta[chunks.SOURCE_ID] != source_id:
                continue
            span = chunks.span_of(chunk.meta)
            assert chunk.content == span.text(text)
            assert chunk.content.strip()
            assert not {span.start, span.end} & inside
            if chunks.PARENT_ID in chunk.meta:
                assert parents[chunk.meta[chunks.PARENT_ID]].meta[chunks.SOURCE_ID] == source_id
            if chunk.meta[chunks.UNIT] == "leaf":
                unseen -= set(range(*span))
        assert not unseen


def check(leaves, expected):
    def with_text(text):
        return [leaf for leaf in leaves if text in leaf.content]

    starts = [leaf.meta[chunks.START] for leaf in leaves]
    if "starts_ascend" in expected:
        assert starts == sorted(starts)
    if "leaf_count" in expected:
        assert len(leaves) == expected["leaf_count"]
    assert len(leaves) >= expected.get("leaf_count_min", 0)
    if "sources_with_leaves" in expected:
        assert {leaf.meta[chunks.SOURCE_ID] for leaf in leaves} == set(expected["sources_with_leaves"])
    if "headings" in expected:
        assert sorted({leaf.meta[chunks.HEADINGS] for leaf in leaves}) == expected["headings"]
    for text in (*expected.get("whole", ()), *expected.get("contains", ())):
        assert with_text(text)
    for text, trail in expected.get("headings_at", {}).items():
        assert {leaf.meta[chunks.HEADINGS] for leaf in with_text(text)} == {trail}
    for text, header in expected.get("table_header_at", {}).items():
        assert {leaf.meta[chunks.TABLE_HEADER] for leaf in with_text(text)} == {header}


def test_changing_one_output_changes_no_other_and_no_input():
    meta = {"tags": ["draft"], "acl": {"groups": ["ops"]}}
    document = Document(id="d1", content="a b c d e f g h i j k l", meta=meta)
    first, *others = HierarchicalSplitter([6, 3]).run(documents=[document])["documents"]
    first.meta["tags"].append("X")
    first.meta["acl"]["groups"].append("X")
    assert all(other.meta["tags"] == ["draft"] and other.meta["acl"] == {"groups": ["ops"]} for other in others)
    assert document.meta == {"tags": ["draft"], "acl": {"groups": ["ops"]}}


def test_sentences_are_found_without_a_network_and_with_a_home_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError("No network.")

    tmp_path.chmod(0o500)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    splitter = HierarchicalSplitter([12, 5], leaf="sentence")
    document = Document(id="d1", content="The lamp is lit. The door is shut. Nobody is home.")
    assert len(splitter.run(documents=[document])["documents"]) == 3
    assert not list(tmp_path.iterdir())


def test_sizes_that_are_given_as_a_tuple_survive_yaml():
    restored = through_yaml(HierarchicalSplitter(block_sizes=(6, 3)))
    assert restored.block_sizes == [6, 3]


def test_a_splitter_from_yaml_loads_its_tokenizer_by_itself():
    pipeline = Pipeline()
    pipeline.add_component("splitter", HierarchicalSplitter([6, 3], "token"))
    document = Document(id="d1", content="The lamp is lit. The door is shut.")
    expected = HierarchicalSplitter([6, 3], "token").run(documents=[document])["documents"]
    found = Pipeline.loads(pipeline.dumps()).run({"documents": [document]})["splitter"]["documents"]
    assert [leaf.id for leaf in found] == [leaf.id for leaf in expected]
