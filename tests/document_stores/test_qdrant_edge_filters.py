"""Filters mean what they mean in Haystack's in-memory store."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.errors import FilterError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore

SCALARS = [
    None, True, False, 0, 1, 2, -1, 1.0, 2.5, -0.0, 2**53, 2**53 + 1, -(2**53) - 1, 10**20, 1e20, float("inf"), "", "1",
    "red", "Red", "rot\ud800", "a\0b", "x" * 3000, "2024-03-02", "2024-03-02T00:00:00", "2024-03-02T00:00:00Z",
    "2024-03-02T01:00:00+01:00", "2024-03-02T01:00:00", "2024-03-01T24:00:00", "2024-03-02 00:00:00.000001",
    "20240302", "2024-13-45", "0001-01-01T00:00:00+14:00", "9999-12-31",
]  # fmt: skip
NESTED = [[], [1], [1.0], [True], ["red"], ["red", "blue"], [[1], None], {}, {"k": 1}, {"k": 1.0, "l": ["2024-03-02"]}]
FILTER_VALUES = [
    *SCALARS, *NESTED, float("nan"), datetime(2024, 3, 2), datetime(2024, 3, 2, tzinfo=UTC),
    datetime(2024, 3, 2, 1, tzinfo=timezone(timedelta(hours=1))), date(2024, 3, 2), ("red",), "March 2024",
]  # fmt: skip
DATES = [value for value in SCALARS if isinstance(value, str) and value.startswith("2024-03")]
NUMBERS = [value for value in SCALARS if isinstance(value, int | float) and abs(value) < 2**53]
FIELDS = ["a", "b", "date", "number", "date", "number", "", "1", "c d", "k", "n.k", "n.l", "n.n.k", 'q"[].x', "missing"]

scalars = st.sampled_from(SCALARS)
values = st.one_of(scalars, scalars, st.sampled_from(NESTED))
metas = st.fixed_dictionaries(
    {},
    optional={
        "a": values,
        "b": scalars,
        "c d": values,
        "": scalars,
        "1": st.sampled_from(NUMBERS),
        "date": st.sampled_from([None, *DATES]),
        "number": st.sampled_from([None, *NUMBERS]),
        "k": st.integers(-2, 2),
        "n": st.one_of(values, st.fixed_dictionaries({}, optional={"k": values, "l": values, "n": st.just({"k": 1})})),
        'q"[]': st.fixed_dictionaries({}, optional={"x": values}),
        "dotted.key": st.just(1),
    },
)
fields = st.sampled_from([*(f"meta.{field}" for field in FIELDS), "a", "k", "dotted.key", "id", "content", "nope.k"])
comparisons = st.one_of(
    st.fixed_dictionaries(
        {
            "field": fields,
            "operator": st.sampled_from(["==", "!="]),
            "value": st.sampled_from([*FILTER_VALUES, "id 0", "text 1"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "field": fields,
            "operator": st.sampled_from([">", ">=", "<", "<="]),
            "value": st.sampled_from(FILTER_VALUES),
        }
    ),
    st.fixed_dictionaries(
        {
            "field": fields,
            "operator": st.sampled_from(["in", "not in"]),
            "value": st.lists(st.sampled_from([*FILTER_VALUES, "id 1", "id 2"]), max_size=3),
        }
    ),
)
filters = st.recursive(
    comparisons,
    lambda parts: st.fixed_dictionaries(
        {"operator": st.sampled_from(["AND", "OR", "NOT"]), "conditions": st.lists(parts, max_size=3)}
    ),
    max_leaves=6,
)


def answer(store, asked):
    """Ids in order, or the kind of error."""
    try:
        return [document.id for document in store.filter_documents(asked)]
    except (FilterError, TypeError):
        return FilterError


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    store = QdrantEdgeDocumentStore(str(tmp_path_factory.mktemp("edge")))
    yield store
    store.close()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(metas, max_size=6), st.lists(filters, min_size=5, max_size=10))
def test_any_filter_finds_the_same_documents_as_in_memory(edge, rows, asked):
    documents = [Document(id=f"id {n}", content=f"text {n}", meta=meta) for n, meta in enumerate(rows)]
    memory = InMemoryDocumentStore(shared=False)
    memory.write_documents(documents)
    edge.delete_all_documents()
    edge.write_documents(documents)
    assert edge.filter_documents() == documents
    for one in asked:
        expected = answer(memory, one)
        assert answer(edge, one) == expected, one
        if expected is not FilterError:
            assert edge.count_documents_by_filter(one) == len(expected)
            assert {found.id for found in edge.search("text", filters=one, top_k=100)} == set(expected)


ONE = {"field": "meta.a", "operator": "==", "value": 1}
ON_CONTENT = {"field": "content", "operator": "==", "value": "text 0"}  # not for the engine


@pytest.mark.parametrize(
    ("malformed", "reason"),
    [
        ({"field": 3, "operator": "==", "value": 1}, "'field' must be a string, got 3"),
        ({"field": None, "operator": "==", "value": 1}, "'field' must be a string, got None"),
        ({"field": "meta.a", "operator": [], "value": 1}, "Unknown comparison operator"),
        ({"field": "meta.a", "operator": "==", "values": 1}, "'value' key missing"),
        ({"operator": "AND", "conditions": [1]}, "A filter must be a dictionary, got 1"),
        ({"operator": "AND", "conditions": [ONE, None]}, "A filter must be a dictionary, got None"),
        ({"operator": "OR", "conditions": [[ONE]]}, "A filter must be a dictionary, got"),
        ({"operator": "NOT", "conditions": None}, "'conditions' must be a list, got None"),
        ({"operator": "AND", "conditions": ONE}, "'conditions' must be a list, got {'field'"),
        ({"operator": "AND", "conditions": "meta.a"}, "'conditions' must be a list, got 'meta.a'"),
        ({"operator": {}, "conditions": [ONE]}, "Unknown logical operator"),
        ({"operator": "OR", "conditions": [ON_CONTENT, 1]}, "A filter must be a dictionary, got 1"),
    ],
)
def test_a_malformed_filter_is_refused_with_the_reason(edge, malformed, reason):
    with pytest.raises(FilterError) as error:
        edge.filter_documents(malformed)
    assert reason in str(error.value)
