import json
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.filter_schema import FilterSchema
from haystack_adv_retrieval.core.self_query.filter_tree import clauses_of, emit
from haystack_adv_retrieval.core.self_query.understanding import MAX_LENGTH, understand_by_rules
from haystack_adv_retrieval.core.self_query.words import Vocabulary

TODAY = date(2031, 5, 14)
DATA = Path(__file__).parents[2] / "data" / "self_query"


def schema(name):
    return FilterSchema(map(json.loads, (DATA / f"{name}.fields.jsonl").read_text().splitlines()))


REPORTS = Vocabulary(schema("reports"))
GEAR = Vocabulary(schema("gear"), "gear of an outdoor shop")


def read(question, vocabulary=REPORTS):
    return understand_by_rules(question, vocabulary, TODAY, 0.85)


def asked(understood):
    return {(clause.field, clause.operator, str(clause.value)) for clause in clauses_of(understood.tree)}


def test_what_is_a_condition_is_not_searched_for():
    understood = read("What did our 2023 earnings reports say about margins?")
    assert understood.search == "margins"
    assert asked(understood) == {("year", "==", "2023"), ("type", "==", "earnings report")}
    assert understood.unexplained == ()


def test_values_that_are_spelt_alike_are_asked_for_together():
    alike = Vocabulary(FilterSchema([{"name": "type", "values": ["Memo", "memo", "letter"]}]))
    for question, operator, values in [
        ("memos about tax", "in", ["Memo", "memo"]),
        ("documents about tax, but no memos", "not in", ["Memo", "memo"]),
        ("letters or memos about tax", "in", ["letter", "Memo", "memo"]),
    ]:
        understood = read(question, alike)
        assert asked(understood) == {("type", operator, str(values))}
        assert understood.unexplained == ()


@pytest.mark.parametrize(
    ("question", "search"),
    [
        ("memos in German", "memos in German"),  # nothing would be left
        ("How do batteries age?", "How do batteries age?"),  # nothing was taken
        ("margins in Q3 2030 for spare parts", "margins for spare parts"),
        ("show me memos about the price of steel, please", "price of steel"),
        ("memos about “ferries” & hulls", "ferries” & hulls"),
    ],
)
def test_the_rest_of_the_question_is_searched_for(question, search):
    assert read(question).search == search


@pytest.mark.parametrize(
    ("question", "conditions"),
    [
        ("year>=2026 language:de", {("year", ">=", "2026"), ("language", "==", "de")}),
        ('author:"Ines Prado"', {("author", "==", "Ines Prado")}),
        ("neither red nor blue", {("colour", "not in", "['red', 'blue']")}),
        ("not red or blue", {("colour", "not in", "['red', 'blue']")}),
        ("tents with no more than 3 years of warranty", {("category", "==", "tent"), ("warranty", "<=", "3")}),
        ("tents of 2 kg and more", {("category", "==", "tent"), ("weight", ">=", "2.0")}),
        ("newer than 6 months", {("released", ">=", "2030-11-15")}),
        ("boots, not under $100", {("category", "==", "boots"), ("price", ">=", "100.0")}),
        ("released by June 2030", {("released", "<", "2030-07-01")}),
        ("released from 2028 onwards", {("released", ">=", "2028-01-01")}),
        ("price below 2000", {("price", "<", "2000.0")}),
        ("jackets under $2000", {("category", "==", "jacket"), ("price", "<", "2000.0")}),
        (
            "tents over $100 but not Nordkap",
            {("category", "==", "tent"), ("price", ">", "100.0"), ("brand", "!=", "Nordkap")},
        ),
        ("between $100 and $200", {("price", ">=", "100.0"), ("price", "<=", "200.0")}),
        ("a $50 stove", {("category", "==", "stove"), ("price", ">=", "50.0"), ("price", "<=", "50.0")}),
        ("stoves from $80", {("category", "==", "stove"), ("price", ">=", "80.0")}),
        ("no stoves, only tents", {("category", "!=", "stove"), ("category", "==", "tent")}),
        ("excluding red, blue and black", {("colour", "not in", "['red', 'blue', 'black']")}),
        ("brand:Nordkap,Kestrel", {("brand", "in", "['Nordkap', 'Kestrel']")}),
        ("stoves, max 2 kg", {("category", "==", "stove"), ("weight", "<=", "2.0")}),
        ("stoves of 2 kg max", {("category", "==", "stove"), ("weight", "<=", "2.0")}),
        ("released from June to July 2029", {("released", ">=", "2029-06-01"), ("released", "<", "2029-08-01")}),
        ("released between Q1 and Q3 2029", {("released", ">=", "2029-01-01"), ("released", "<", "2029-10-01")}),
        ("released in 2030's second quarter", {("released", ">=", "2030-04-01"), ("released", "<", "2030-07-01")}),
    ],
)
def test_conditions_are_read_in_many_ways(question, conditions):
    vocabulary = REPORTS if question.startswith(("year", "author")) else GEAR
    understood = read(question, vocabulary)
    assert asked(understood) == conditions
    assert understood.unexplained == ()


@pytest.mark.parametrize(
    "question",
    [
        "texts about German beer",
        "the history of French cooking",
        "the marketing of the harbour expansion",
        "how do I write a memo?",
        "what is a contract?",
        "things that may march",
        "the march of progress",
        "Rio de Janeiro en route",
        "When must a contract be signed?",
        "Until when is a memo kept, and who may read it?",
        "which of the machines may human resources use?",
        "is the policy confidential?",
        "I lost my badge. Must I tell the legal department?",
        "weighs 5 kg",
    ],
)
def test_a_value_that_is_the_topic_is_no_condition(question):
    understood = read(question)
    assert understood.tree is None
    assert understood.search == question


@pytest.mark.parametrize(
    ("question", "unexplained"),
    [
        ("memos that are not too German", "German"),
        ("German brewing", "German"),
        ("memos or letters on tax", "memos"),
        ("reports from around 2020", "2020"),
        ("about 2020 in brief", "2020"),
        ("memos by Hayashi", "Hayashi"),
        ("texts in Germann", "Germann"),
        ("longer than 20", "20"),
        ("no batteries", "no"),
        ("published in spring", "published"),
        ("over 5 kg", "over"),
        ("non-German memos", "German"),
        ("German-speaking partners", "German"),
        ("memos except the ones by Ines Prado", "Ines Prado"),
        ("everything except memos from 2029", "2029"),
        ("everything except memos from 2029", "memos"),
        ("any language but German", "German"),
        ("public policy debate", "public"),
        ("critical or German brewing", "German"),
    ],
)
def test_what_is_not_understood_is_reported_and_not_filtered_by(question, unexplained):
    understood = read(question)
    assert unexplained in understood.unexplained
    assert unexplained not in str(emit(understood.tree))


@pytest.mark.parametrize(
    ("question", "conditions"),
    [
        ("Which policies apply to travel?", {("type", "==", "policy")}),
        ("When do German contracts end?", {("language", "==", "de"), ("type", "==", "contract")}),
        ("who approved the budget in documents from marketing?", {("department", "==", "marketing")}),
        ("Are there memos about hiring?", {("type", "==", "memo")}),
        ("How much was spent in 2030?", {("year", "==", "2030")}),
    ],
)
def test_a_question_for_a_fact_can_say_which_documents_are_meant(question, conditions):
    understood = read(question)
    assert asked(understood) == conditions
    assert understood.unexplained == ()


def test_cues_without_a_value_are_no_conditions_in_a_question_for_a_fact():
    for question in ("What has to happen before the payment?", "Where may the seal not be printed?"):
        assert read(question).unexplained == ()
    assert read("payments before the merger").unexplained == ("before",)


def test_a_part_of_a_year_is_asked_by_its_year_and_searched_for():
    fields = [{"name": "year", "type": "int", "unit": "year"}, {"name": "type", "values": ["report", "memo"]}]
    vocabulary = Vocabulary(FilterSchema(fields))
    understood = read("the Q3 2030 report on returns", vocabulary)
    assert asked(understood) == {("year", "==", "2030"), ("type", "==", "report")}
    assert understood.search == "the Q3 2030 on returns"
    assert asked(read("Q1 2029 or Q3 2030", vocabulary)) == {("year", "in", "[2029, 2030]")}
    assert read("not in Q3 2030", vocabulary).unexplained
    assert read("ships on 3 June", vocabulary).tree is None  # of which year is not said


def test_what_no_field_can_answer_is_no_condition():
    vocabulary = Vocabulary(FilterSchema([{"name": "type", "values": ["memo", "letter"]}]))
    understood = read("memos about 30 days of 2030 and 5 kg", vocabulary)
    assert asked(understood) == {("type", "==", "memo")}
    assert understood.unexplained == ()


def test_an_ambiguous_value_needs_the_name_of_its_field():
    vocabulary = Vocabulary(FilterSchema([{"name": n, "values": ["red", "blue"]} for n in ("roof", "door")]))
    assert read("red houses", vocabulary).tree is None
    assert asked(read("houses with a red roof", vocabulary)) == {("roof", "==", "red")}


def test_two_date_fields_need_a_name():
    vocabulary = Vocabulary(FilterSchema([{"name": n, "type": "date"} for n in ("created", "updated")]))
    assert read("since 2030", vocabulary).unexplained == ("since", "2030")
    assert asked(read("updated since 2030", vocabulary)) == {("updated", ">=", "2030-01-01")}


def test_lists_are_joined_by_and_unless_or_is_said():
    fields = [{"name": "tags", "type": "list[str]", "values": ["red", "new", "old"], "operators": ["in", "not in"]}]
    vocabulary = Vocabulary(FilterSchema(fields))
    assert asked(read("red and new", vocabulary)) == {("tags", "in", "['red']"), ("tags", "in", "['new']")}
    assert asked(read("new or old", vocabulary)) == {("tags", "in", "['new', 'old']")}


def test_alternatives_on_different_fields_stay_alternatives():
    understood = read("Nordkap stoves or Pinewood tents", GEAR)
    assert emit(understood.tree)["operator"] == "OR"
    assert [part["operator"] for part in emit(understood.tree)["conditions"]] == ["AND", "AND"]


def test_a_question_in_another_language_is_not_misread():
    for question in (
        "Berichte vor 2020",
        "rapports depuis 2020",
        "informes hasta marzo de 2020",
        "verslagen sinds 2020",
    ):
        understood = read(question)
        assert understood.tree is None, question
        assert "2020" in understood.unexplained


def test_letters_that_only_look_alike_are_no_words():
    for question in ("ı", "memos ın German", "tıtle: x", "lang\u0131age:de", "FİRST quarter, aprıl 2030"):
        read(question)
    assert asked(read("policies of Aprıl 2030")) == {
        ("type", "==", "policy"),
        ("published", ">=", "2030-04-01"),
        ("published", "<", "2030-05-01"),
    }


def test_a_very_long_question_is_left_to_the_model():
    understood = read("memos " * MAX_LENGTH)
    assert understood.tree is None
    assert understood.unexplained


WORDS = [
    "memos",
    "German",
    "or",
    "and",
    "not",
    "2023",
    "since",
    "between",
    "about",
    "of",
    "pages",
    "5",
    ",",
    "“",
    "by",
    "to",
    "29 February",
    "Q1",
    "last year",
    "$5",
    "and a half",
    "max",
    "no",
    "is",
    "aprıl 2030",
    "FİRST quarter",
    "AUTHOR:x",
    "wrıtten",
]


@given(st.text(max_size=120) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_question_is_read_without_error(question):
    understood = read(question)
    assert understood.search.strip() or not question.strip()
    assert {clause.field for clause in clauses_of(understood.tree)} <= {f.name for f in REPORTS.schema.fields}
