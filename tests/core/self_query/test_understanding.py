"""The labelled questions of tests/data/self_query, and what becomes of a model's reply."""

import json
from datetime import date
from pathlib import Path

import pytest
from haystack import Document
from haystack.utils.filters import document_matches_filter

from haystack_adv_retrieval.core.filter_schema import FilterSchema
from haystack_adv_retrieval.core.self_query.filter_repair import repair
from haystack_adv_retrieval.core.self_query.filter_tree import emit, read_filter
from haystack_adv_retrieval.core.self_query.prompt import describe, examples_of, read_reply, reply_schema
from haystack_adv_retrieval.core.self_query.understanding import understand_by_rules, understand_reply
from haystack_adv_retrieval.core.self_query.words import Vocabulary

TODAY = date(2031, 5, 14)
DATA = Path(__file__).parents[2] / "data" / "self_query"
CONTENTS = {"reports": "documents", "recipes": "recipes, dishes and food", "gear": "gear", "tickets": "support tickets"}


def lines(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


SCHEMAS = {name: FilterSchema(lines(f"{name}.fields.jsonl")) for name in CONTENTS}
VOCABULARIES = {name: Vocabulary(SCHEMAS[name], contents) for name, contents in CONTENTS.items()}
QUESTIONS = lines("questions.jsonl")


@pytest.fixture(scope="module")
def documents():
    return {
        name: [
            Document(id=row["id"], content=row["content"], meta=row["meta"]) for row in lines(f"{name}.documents.jsonl")
        ]
        for name in CONTENTS
    }


def selected(filters, documents):
    return {document.id for document in documents if not filters or document_matches_filter(filters, document)}


def test_there_are_enough_questions_and_their_filters_are_valid():
    assert len(QUESTIONS) >= 120
    assert len({row["question"] for row in QUESTIONS}) == len(QUESTIONS)
    for row in QUESTIONS:
        for filters in [row["filter"], *row.get("also_right", [])]:
            _, notes = repair(read_filter(filters), SCHEMAS[row["schema"]], TODAY)
            assert not [note for note in notes if note.kind == "dropped"], row


def test_what_the_rules_explain_is_right_and_that_is_most(documents):
    explained = right = 0
    for row in QUESTIONS:
        understood = understand_by_rules(row["question"], VOCABULARIES[row["schema"]], TODAY, 0.85)
        if understood.unexplained:
            continue
        golds = [
            repair(read_filter(f), SCHEMAS[row["schema"]], TODAY)[0]
            for f in [row["filter"], *row.get("also_right", [])]
        ]
        found = selected(emit(understood.tree), documents[row["schema"]])
        explained += 1
        right += found in [selected(emit(gold), documents[row["schema"]]) for gold in golds]
    assert explained > 0.85 * len(QUESTIONS)
    assert right == explained


def test_a_part_that_is_not_explained_never_narrows(documents):
    """Where the rules do not explain all, what they do filter by keeps every document that is right."""
    for row in QUESTIONS:
        understood = understand_by_rules(row["question"], VOCABULARIES[row["schema"]], TODAY, 0.85)
        gold, _ = repair(read_filter(row["filter"]), SCHEMAS[row["schema"]], TODAY)
        if understood.unexplained and not row.get("also_right"):
            kept = selected(emit(understood.tree), documents[row["schema"]])
            assert kept >= selected(emit(gold), documents[row["schema"]]), row["question"]


REPORTS = SCHEMAS["reports"]


@pytest.mark.parametrize(
    ("text", "filters", "query"),
    [
        ('{"filter": [], "query": "tax"}', [], "tax"),
        ('{"filters": {"year": 2020}}', {"year": 2020}, ""),
        ('{"query": " tax "}', None, "tax"),
        ('{"query": 7, "conditions": null}', None, ""),
        ('{"field": "year", "operator": "==", "value": 2020}', {"field": "year", "operator": "==", "value": 2020}, ""),
        ('Sure:\n```json\n{"where": [], "query": "a"}\n```', [], "a"),
    ],
)
def test_a_reply_is_read_in_many_forms(text, filters, query):
    assert read_reply(text)[0] == (filters, query)


@pytest.mark.parametrize("text", ["", "[]", "no", '{"answer": 1}', '{"query": "tax", "filter": [{"field": "ye'])
def test_a_reply_without_an_object_or_cut_off_is_asked_for_again(text):
    with pytest.raises(ValueError, match=r"reply"):
        read_reply(text)


def test_the_search_text_falls_back_to_that_of_the_rules_and_to_the_question():
    question = "memos by Hayashi on tax"
    rules = understand_by_rules(question, VOCABULARIES["reports"], TODAY, 0.85)
    assert understand_reply(question, [], "", REPORTS, TODAY, 0.85).search == question
    assert understand_reply(question, [], "", REPORTS, TODAY, 0.85, rules).search == "Hayashi on tax"
    assert understand_reply(question, [], "tax", REPORTS, TODAY, 0.85, rules).search == "tax"


def test_a_field_is_described_in_a_line():
    fields = {field.name: describe(field) for field in REPORTS.fields}
    assert fields["language"].startswith(
        'language (str): language of the text; one of "en" (English), "de" (German, Deutsch)'
    )
    assert fields["pages"] == "pages (int): length; in pages"
    assert fields["year"].endswith("also called fiscal year, FY; a calendar year")
    (tags,) = FilterSchema([{"name": "tags", "type": "list[str]", "operators": ["in"], "values": ["a"]}]).fields
    assert describe(tags) == 'tags (list[str]): any of "a"; only with in'


@pytest.mark.parametrize("schema", [*SCHEMAS.values(), FilterSchema([{"name": "a"}])], ids=[*SCHEMAS, "bare"])
def test_the_examples_are_valid_filters_over_the_fields(schema):
    examples = examples_of(schema)
    assert ("How are lanterns made?", {"filter": [], "query": "how lanterns are made"}) in examples
    for question, reply in examples:
        understood = understand_reply(question, reply["filter"], reply["query"], schema, TODAY, 0.85)
        assert not [note for note in understood.notes if note.kind != "coerced"], question


def test_the_schema_of_the_reply_allows_the_examples():
    import jsonschema

    for schema in SCHEMAS.values():
        validator = jsonschema.Draft202012Validator(reply_schema(schema))
        for _, reply in examples_of(schema):
            validator.validate(reply)
        group = {"operator": "NOT", "conditions": [examples_of(schema)[0][1]["filter"][0]]}
        validator.validate({"filter": [group], "query": ""})
        assert not validator.is_valid({"filter": [{"field": "colour", "operator": "==", "value": 1}], "query": ""})
