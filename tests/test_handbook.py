import json
from collections import Counter
from pathlib import Path

import pytest
from haystack import Document
from haystack.components.converters import HTMLToDocument, PyPDFToDocument
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils.filters import document_matches_filter

from haystack_adv_retrieval.components.self_query_filter_builder import SelfQueryFilterBuilder

EXAMPLES = Path(__file__).parent.parent / "examples"
HANDBOOK = EXAMPLES / "handbook"


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def text_of(path: Path) -> str:
    converters = {".html": HTMLToDocument, ".pdf": PyPDFToDocument}
    if path.suffix not in converters:
        return path.read_bytes().decode("utf-8")
    return converters[path.suffix]().run(sources=[path])["documents"][0].content


METADATA = {row["file"]: row["meta"] for row in read_jsonl(HANDBOOK / "metadata.jsonl")}
QUESTIONS = read_jsonl(EXAMPLES / "handbook.questions.jsonl")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {name: text_of(HANDBOOK / name) for name in METADATA}


def test_every_document_has_metadata_of_the_same_shape():
    assert set(METADATA) == {path.name for path in HANDBOOK.iterdir()} - {"metadata.jsonl"}
    types = {"title": str, "department": str, "year": int, "type": str, "audience": str}
    for meta in METADATA.values():
        assert {key: type(value) for key, value in meta.items()} == types


@pytest.mark.parametrize("name", ["travel.md", "security.md"])
def test_front_matter_agrees_with_the_metadata_file(name: str):
    front_matter = (HANDBOOK / name).read_text(encoding="utf-8").split("---\n")[1]
    assert front_matter == "".join(f"{key}: {value}\n" for key, value in METADATA[name].items())


@pytest.mark.parametrize("row", QUESTIONS, ids=[row["question"] for row in QUESTIONS])
def test_quotes_are_found_once_in_order_and_apart(row: dict, texts: dict[str, str]):
    text, end = texts[row["source"]], 0
    assert row["quotes"]
    for quote in row["quotes"]:
        assert text.count(quote) == 1
        assert text.index(quote) >= end
        end = text.index(quote) + len(quote)


def test_questions_are_distinct_complete_and_cover_every_document():
    assert all(set(row) == {"question", "source", "quotes", "answer", "group"} for row in QUESTIONS)
    assert all(row["question"] and row["answer"] for row in QUESTIONS)
    assert len({row["question"] for row in QUESTIONS}) == len(QUESTIONS) >= 48
    assert {row["source"] for row in QUESTIONS} == set(METADATA)
    assert min(Counter(row["group"] for row in QUESTIONS).values()) >= 4


def test_the_demo_sentence_says_nothing_without_its_section(texts: dict[str, str]):
    demo = QUESTIONS[0]
    assert demo["quotes"][-1] == "Refunds are paid within 14 days of this."
    section = texts["refunds.md"].split("## Fieldpost and Glasspost stations")[1].split("\n## ")[0]
    assert all(quote in section for quote in demo["quotes"])


def test_the_pdf_is_what_its_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: dict[str, str]):
    pytest.importorskip("fpdf")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from make_pdf import main

    main(tmp_path / "warranty.pdf")
    assert text_of(tmp_path / "warranty.pdf") == texts["warranty.pdf"]


def test_no_filter_read_from_a_question_hides_its_answer():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents([Document(content=name, meta=meta | {"unit": "source"}) for name, meta in METADATA.items()])
    builder = SelfQueryFilterBuilder(document_store=store, method="rules")
    results = [(row, builder.run(query=row["question"])) for row in QUESTIONS]
    filtered = [(row, result["filters"]) for row, result in results if result["filters"]]
    assert len(filtered) >= 9
    for row, filters in filtered:
        assert document_matches_filter(filters, Document(meta=METADATA[row["source"]])), row["question"]
    assert sum(bool(result["report"]["unexplained"]) for _, result in results) <= 5  # a model would be asked
