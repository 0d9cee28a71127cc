from datetime import date

import pytest

from haystack_adv_retrieval.core.filter_schema import FilterSchema
from haystack_adv_retrieval.core.self_query.evidence import checked
from haystack_adv_retrieval.core.self_query.filter_tree import Clause, emit
from haystack_adv_retrieval.core.self_query.understanding import understand_reply

TODAY = date(2031, 5, 14)
SCHEMA = FilterSchema(
    [
        {"name": "cuisine", "values": {"indian": [], "japanese": [], "french": []}},
        {"name": "course", "values": {"main": ["main dish"], "dessert": ["sweet"]}},
        {"name": "vegetarian", "type": "bool", "values": {"true": ["meatless"], "false": ["with meat"]}},
        {"name": "calories", "type": "int", "unit": "kcal"},
        {"name": "servings", "type": "int", "unit": "people"},
        {"name": "department", "values": {"human resources": ["HR"]}},
        {"name": "author"},
        {"name": "added", "type": "date"},
    ]
)


def check(question, words, field, operator, value, unexplained=()):
    return checked(Clause(field, operator, value, words=words), question, SCHEMA, unexplained, TODAY, 0.85)


@pytest.mark.parametrize(
    ("question", "words", "field", "value"),
    [
        ("dishes from Japan", "from Japan", "cuisine", "japanese"),
        ("tomato soup, no meat", "no meat", "vegetarian", True),
        ("anything by HR", "HR", "department", "human resources"),
        ("something sweet", "sweet", "course", "dessert"),
        ("recipes for two", "for two", "servings", 2),
        ("nobody is served", "nobody", "servings", 0),
        ("posted yesterday", "yesterday", "added", "2031-05-13"),
        ("posted in spring 2030", "spring 2030", "added", "2030-03-01"),
        ("written by Roe", "by Roe", "author", "Ann Roe"),  # not an enumeration
        ("Hauptgerichte für heute", "Hauptgerichte", "course", "main"),  # a translation
        ("plats sans viande avec du riz", "sans viande", "vegetarian", True),
        ("What is there?", "", "course", "main"),  # a model that quotes no words
    ],
)
def test_a_value_that_the_question_names_in_some_way_is_kept(question, words, field, value):
    kept = check(question, words, field, "==", value)
    assert isinstance(kept, Clause), kept
    assert kept.value == value


@pytest.mark.parametrize(
    ("question", "words", "field", "value"),
    [
        ("tomato soup", "tomato soup", "course", "main"),
        ("dishes with lemon", "with lemon", "vegetarian", False),
        ("low calorie soup", "low calorie", "calories", 100),
        ("recent recipes", "recent", "added", "2031-01-01"),
        ("easy soups", "hard soups", "course", "main"),  # words that are not there
    ],
)
def test_a_guess_is_ignored_with_the_reason(question, words, field, value):
    reason = check(question, words, field, "==", value)
    assert isinstance(reason, str)
    assert "the question does not" in reason


def test_alternatives_of_which_one_is_not_known_are_not_asked():
    """Leaving out what the question names would be narrower than the question; what only the model names is no loss."""
    assert "does not have" in check("French or Nordic soup", "French or Nordic", "cuisine", "in", ["french", "Nordic"])
    assert isinstance(check("French soup", "French", "cuisine", "in", ["french", "Nordic"]), Clause)


def test_the_clock_is_believed_more_than_the_model():
    def value(words, said):
        return check(f"soups posted {words}", words, "added", ">=", said).value

    assert value("since March", "2023-03-01").start == date(2031, 3, 1)
    assert value("last week", "no date").start == date(2031, 5, 5)
    for same in ("2031-03-01", "2031-03-31", "2031-04-01"):  # the ends of what was said, in whatever way
        assert value("since March", same) == same
    assert value("between March and May", "2023-03-01") == "2023-03-01"  # which of the two is not clear


def test_what_was_read_by_the_clock_is_reported():
    said = {"words": "since March", "field": "added", "operator": ">=", "value": "2023-03-01"}
    understood = understand_reply("soups since March", [said], "soups", SCHEMA, TODAY, 0.85)
    assert emit(understood.tree) == {"field": "meta.added", "operator": ">=", "value": "2031-03-01"}
    assert [note.kind for note in understood.notes] == ["coerced"]
