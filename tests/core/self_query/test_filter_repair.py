import json
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.filter_schema import FilterSchema
from haystack_adv_retrieval.core.self_query.filter_repair import repair
from haystack_adv_retrieval.core.self_query.filter_tree import (
    Clause,
    Group,
    Unreadable,
    clauses_of,
    emit,
    parts_by_field,
    read_filter,
    relaxations,
    with_clauses,
)

TODAY = date(2031, 5, 14)
SCHEMA = FilterSchema(
    [
        {"name": "year", "type": "int"},
        {"name": "fiscal", "type": "int", "unit": "year"},
        {"name": "rating", "type": "float"},
        {"name": "lang", "values": {"en": [], "de": ["German"], "pt": []}},
        {"name": "published", "type": "date"},
        {"name": "tags", "type": "list[str]", "operators": ["in", "not in"]},
        {"name": "labels", "type": "list[str]"},
        {"name": "in_stock", "type": "bool"},
        {"name": "author"},
    ]
)


def is_(field, operator, value):
    return {"field": field, "operator": operator, "value": value}


def and_(*conditions):
    return {"operator": "AND", "conditions": list(conditions)}


def or_(*conditions):
    return {"operator": "OR", "conditions": list(conditions)}


def not_(*conditions):
    return {"operator": "NOT", "conditions": list(conditions)}


def built(data):
    tree, notes = repair(read_filter(data), SCHEMA, TODAY)
    return emit(tree), [note.kind for note in notes]


YEAR = is_("year", ">=", 2020)
META_YEAR = is_("meta.year", ">=", 2020)
GERMAN = is_("lang", "==", "de")
META_GERMAN = is_("meta.lang", "==", "de")
BAD = is_("colour", "==", "red")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (YEAR, META_YEAR),
        ([YEAR, GERMAN], and_(META_YEAR, META_GERMAN)),
        ({"year": {"$gte": 2020}, "lang": "de"}, and_(META_YEAR, META_GERMAN)),
        ({"$or": [YEAR, GERMAN]}, or_(META_YEAR, META_GERMAN)),
        (
            {"op": "or", "args": [{"attribute": "year", "comparator": "gte", "values": 2020}, GERMAN]},
            or_(META_YEAR, META_GERMAN),
        ),
        ({"conditions": [YEAR]}, META_YEAR),
        (and_(and_(YEAR), {}, None, [and_(GERMAN)]), and_(META_YEAR, META_GERMAN)),
        (and_(YEAR, YEAR), META_YEAR),
        (or_(GERMAN, or_(YEAR, and_(YEAR, GERMAN))), or_(META_GERMAN, META_YEAR, and_(META_YEAR, META_GERMAN))),
        ({}, {}),
        ([], {}),
        (None, {}),
    ],
)
def test_many_forms_mean_one_filter(data, expected):
    assert built(data) == (expected, [])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (is_("type", "==", "memo"), is_("meta.type", "in", ["Memo", "memo"])),
        (is_("type", "!=", "MEMO"), is_("meta.type", "not in", ["Memo", "memo"])),
        (not_(is_("type", "==", "memo")), is_("meta.type", "not in", ["Memo", "memo"])),
        (is_("type", "in", ["memo", "letter", "Memo"]), is_("meta.type", "in", ["Memo", "memo", "letter"])),
        (is_("type", "not in", ["memo"]), is_("meta.type", "not in", ["Memo", "memo"])),
        (is_("type", "==", "letter"), is_("meta.type", "==", "letter")),
        (
            and_(is_("type", "==", "memo"), is_("type", "==", "letter")),
            or_(is_("meta.type", "in", ["Memo", "memo"]), is_("meta.type", "==", "letter")),
        ),
    ],
)
def test_values_that_are_spelt_alike_are_asked_for_together(data, expected):
    schema = FilterSchema([{"name": "type", "values": ["Memo", "memo", "letter"]}])
    assert emit(repair(read_filter(data), schema, TODAY)[0]) == expected


def test_values_that_are_spelt_alike_are_asked_for_with_what_the_field_allows():
    schema = FilterSchema([{"name": "type", "values": ["Memo", "memo"], "operators": ["==", "!="]}])
    one, other = (is_("meta.type", "==", value) for value in ("Memo", "memo"))
    assert emit(repair(read_filter(is_("type", "==", "memo")), schema, TODAY)[0]) == or_(one, other)
    one, other = (is_("meta.type", "!=", value) for value in ("Memo", "memo"))
    assert emit(repair(read_filter(is_("type", "!=", "memo")), schema, TODAY)[0]) == and_(one, other)


@pytest.mark.parametrize("data", ["year >= 2020", 7, {"operator": "=="}, {"operator": "XOR", "conditions": [YEAR]}])
def test_what_has_no_known_form_is_dropped(data):
    assert built(data) == ({}, ["dropped"])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (and_(YEAR, BAD), META_YEAR),
        (or_(YEAR, BAD), {}),
        (not_(BAD), {}),
        (not_(and_(YEAR, BAD)), {}),
        (not_(or_(YEAR, BAD)), is_("meta.year", "<", 2020)),
        (and_(GERMAN, or_(YEAR, and_(BAD, GERMAN))), and_(META_GERMAN, or_(META_YEAR, META_GERMAN))),
        (not_(YEAR, BAD), is_("meta.year", "<", 2020)),
        (is_("lang", ">", "de"), {}),
        (is_("year", "roughly", 2020), {}),
        (is_("lang", "in", ["de", "xx"]), is_("meta.lang", "in", ["de"])),
        (is_("lang", "not in", ["de", "xx"]), is_("meta.lang", "not in", ["de"])),
        (is_("lang", "in", ["xx"]), {}),
        (is_("lang", "in", []), {}),
        (is_("year", "in", [2020, "soon"]), {}),
        (is_("year", ">=", [2020, 2021]), {}),
        (is_("year", "between", [2020]), {}),
        (is_("author", "contains", "Roe"), {}),
        (is_("labels", "contains", "red"), {}),
        (is_("year", "==", 2020.5), {}),
        (is_("year", "==", None), {}),
    ],
)
def test_an_invalid_part_only_ever_widens(data, expected):
    filters, notes = built(data)
    assert filters == expected
    assert "dropped" in notes


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (not_(GERMAN), is_("meta.lang", "!=", "de")),
        (not_(not_(GERMAN)), META_GERMAN),
        (not_(YEAR, GERMAN), and_(is_("meta.year", "<", 2020), is_("meta.lang", "!=", "de"))),
        (not_(and_(YEAR, GERMAN)), or_(is_("meta.year", "<", 2020), is_("meta.lang", "!=", "de"))),
        (not_(or_(YEAR, not_(GERMAN))), and_(is_("meta.year", "<", 2020), META_GERMAN)),
        (not_(is_("year", "between", [2020, 2024])), or_(is_("meta.year", "<", 2020), is_("meta.year", ">", 2024))),
        (not_(is_("lang", "in", ["de", "en"])), is_("meta.lang", "not in", ["de", "en"])),
    ],
)
def test_not_is_pushed_down_to_the_conditions(data, expected):
    assert built(data) == (expected, [])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (is_("rating", "==", 4.5), and_(is_("meta.rating", ">=", 4.5), is_("meta.rating", "<=", 4.5))),
        (is_("rating", "!=", 4.5), or_(is_("meta.rating", "<", 4.5), is_("meta.rating", ">", 4.5))),
        (
            is_("published", "==", "2031-03"),
            and_(is_("meta.published", ">=", "2031-03-01"), is_("meta.published", "<", "2031-04-01")),
        ),
        (
            is_("published", "!=", "2031"),
            or_(is_("meta.published", "<", "2031-01-01"), is_("meta.published", ">=", "2032-01-01")),
        ),
        (is_("published", ">", "2030"), is_("meta.published", ">=", "2031-01-01")),
        (is_("published", "<=", "2030"), is_("meta.published", "<", "2031-01-01")),
        (is_("published", "<", "2030"), is_("meta.published", "<", "2030-01-01")),
        (is_("year", "==", 2020), is_("meta.year", "==", 2020)),
        (is_("year", "==", [2020, 2021]), is_("meta.year", "in", [2020, 2021])),
        (is_("year", ">", 2020.5), is_("meta.year", ">", 2020)),
        (is_("year", ">=", 2020.5), is_("meta.year", ">=", 2021)),
        (is_("tags", "contains", "red"), is_("meta.tags", "in", ["red"])),
        (is_("tags", "!=", "red"), is_("meta.tags", "not in", ["red"])),
        (is_("lang", "contains", "German"), is_("meta.lang", "in", ["de"])),
        (is_("in_stock", "==", "yes"), is_("meta.in_stock", "==", True)),
    ],
)
def test_only_what_stores_read_alike_is_written(data, expected):
    assert built(data)[0] == expected


def test_sets_of_days_become_alternatives():
    first, second = (is_("published", "==", day) for day in ("2031-03-01", "2031-03-05"))
    assert built(is_("published", "in", ["2031-03-01", "2031-03-05"]))[0] == built(or_(first, second))[0]
    excluded = built(is_("published", "not in", ["2031-03-01", "2031-03-05"]))[0]
    assert excluded["operator"] == "AND"
    assert [part["operator"] for part in excluded["conditions"]] == ["OR", "OR"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (and_(GERMAN, is_("lang", "==", "en")), or_(META_GERMAN, is_("meta.lang", "==", "en"))),
        (
            and_(is_("year", "==", 2020), YEAR, is_("year", "<", 2019)),
            or_(is_("meta.year", "==", 2020), META_YEAR, is_("meta.year", "<", 2019)),
        ),
        (
            and_(is_("year", ">", 2024), is_("year", "<=", 2024)),
            or_(is_("meta.year", ">", 2024), is_("meta.year", "<=", 2024)),
        ),
    ],
)
def test_conditions_that_exclude_each_other_are_read_as_alternatives(data, expected):
    assert built(data) == (expected, ["repaired"])


@pytest.mark.parametrize(
    "data",
    [
        and_(is_("year", ">=", 2020), is_("year", "<=", 2020)),
        and_(is_("year", "==", 2020), is_("year", "!=", 2021)),
        and_(is_("lang", "in", ["de", "en"]), is_("lang", "not in", ["de"])),
        and_(is_("tags", "in", ["red"]), is_("tags", "in", ["blue"])),
    ],
)
def test_conditions_that_go_together_stay(data):
    filters, notes = built(data)
    assert filters["operator"] == "AND"
    assert notes == []


def test_depth_and_size_are_bounded():
    deep = YEAR
    for _ in range(500):
        deep = and_(deep)
    assert built(and_(GERMAN, deep)) == (META_GERMAN, ["dropped"])
    many, notes = built([is_("year", "!=", year) for year in range(1900, 2000)])
    assert len(many["conditions"]) == 50
    assert len(notes) == 50
    assert built(is_("year", "in", list(range(60)))) == ({}, ["dropped"])


@pytest.mark.parametrize("place", ["field", "operator", "value"])
def test_deeply_nested_rubbish_is_bounded_in_the_report_too(place):
    deep = []
    for _ in range(900):
        deep = [deep]
    for rubbish in (deep, {"a": deep}, [1, deep], float("nan"), "x" * 5000):
        filters, _ = built(YEAR | {place: rubbish})
        tree, notes = repair(read_filter(YEAR | {place: rubbish}), SCHEMA, TODAY)
        assert filters == {} == emit(tree)
        assert len(json.dumps([[note.said, note.reason] for note in notes], allow_nan=False)) < 1000


def test_what_was_understood_is_noted():
    _, notes = repair(read_filter([is_("lang", "==", "german"), is_("published", ">", "2030"), BAD]), SCHEMA, TODAY)
    assert [(note.kind, note.said, note.reason) for note in notes] == [
        ("coerced", is_("lang", "==", "german"), "read as de"),
        ("coerced", is_("published", ">", "2030"), "read as 2030-01-01 to 2030-12-31"),
        ("dropped", BAD, "there is no field 'colour'"),
    ]


def test_the_least_certain_field_is_given_up_first():
    sure = {"year": 0.9, "lang": 0.5, "published": 0.8}
    tree = with_clauses(
        read_filter([YEAR, GERMAN, is_("published", "==", "2030"), is_("year", "<", 2025)]),
        lambda c: replace(c, certainty=sure[c.field]),
    )
    tree, _ = repair(tree, SCHEMA, TODAY)
    ladder = [{clause.field for clause in clauses_of(step)} for step in relaxations(tree)]
    assert ladder == [{"year", "published"}, {"year"}, set()]
    assert [certainty for certainty, _ in parts_by_field(tree)] == [0.9, 0.5, 0.8]
    assert emit(relaxations(tree)[1]) == and_(META_YEAR, is_("meta.year", "<", 2025))


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("==", "Q3 2023", is_("meta.fiscal", "==", 2023)),
        (">", "Q3 2023", is_("meta.fiscal", ">=", 2023)),
        (">=", "Q3 2023", is_("meta.fiscal", ">=", 2023)),
        ("<", "Q3 2023", is_("meta.fiscal", "<=", 2023)),
        ("in", ["Q3 2023", 2025], is_("meta.fiscal", "in", [2023, 2025])),
        ("!=", "Q3 2023", {}),
        ("not in", ["Q3 2023", 2025], {}),
    ],
)
def test_a_part_of_a_year_lets_the_whole_year_through(operator, value, expected):
    assert built(is_("fiscal", operator, value))[0] == expected


def test_alternatives_are_given_up_as_a_whole():
    tree, _ = repair(read_filter(and_(GERMAN, or_(YEAR, is_("rating", ">", 4)))), SCHEMA, TODAY)
    assert [emit(step) for step in relaxations(tree)] == [META_GERMAN, {}]
    assert relaxations(None) == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["year", "de", "AND", "=="]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["field", "operator", "value", "conditions", "op", "year", "lang", "$or", "not", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_becomes_a_filter_over_the_schema(data):
    tree, notes = repair(read_filter(data), SCHEMA, TODAY)
    assert {clause.field for clause in clauses_of(tree)} <= {field.name for field in SCHEMA.fields}
    json.dumps(emit(tree), allow_nan=False)
    json.dumps([note.said for note in notes])
    assert not any(isinstance(part, Unreadable) for part in _nodes(tree))


def _nodes(tree):
    yield tree
    if isinstance(tree, Group):
        for part in tree.parts:
            yield from _nodes(part)


def test_a_filter_shares_nothing_with_the_tree_it_was_written_from():
    clause = Clause("lang", "in", ["de"])
    emit(clause)["value"].append("en")
    assert clause.value == ["de"]
