"""Whatever is asked for, every store accepts the filter, reads it alike, and gives no less than was asked for."""

import json
import random
from datetime import date

import pytest
from haystack.document_stores.in_memory import InMemoryDocumentStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from portable_stores import AUTHORS, BASE, SCHEMA, STORES, documents, filled_store, found

from haystack_adv_retrieval.core.self_query.filter_repair import repair
from haystack_adv_retrieval.core.self_query.filter_tree import Clause, Group, clauses_of, emit, read_filter
from haystack_adv_retrieval.stores import both

TODAY = date(2031, 5, 14)
DOCUMENTS = documents()
NAMES = [field.name for field in SCHEMA.fields]


@pytest.fixture(scope="module", params=STORES)
def store(request, tmp_path_factory):
    return filled_store(request.param, DOCUMENTS, tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def reference():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(DOCUMENTS)
    return store


SCALARS = (
    st.integers(2015, 2035)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.sampled_from(
        ["de", "German", "xx", "2030", "2030-03-04", "Q3 2030", "last year", "4.7", "two", "10 pages", *AUTHORS]
    )
    | st.text(max_size=12)
)
CONDITIONS = st.fixed_dictionaries(
    {
        "field": st.sampled_from([*NAMES, "colour", "meta.year", "content", "id", "meta.tenant"]),
        "operator": st.sampled_from(
            ["==", "!=", ">", ">=", "<", "<=", "in", "not in", "gte", "contains", "between", "=~"]
        ),
        "value": SCALARS | st.lists(SCALARS, max_size=3),
    }
)
REPLIES = st.recursive(
    CONDITIONS | SCALARS | st.dictionaries(st.text(max_size=5), SCALARS, max_size=2),
    lambda inner: (
        st.fixed_dictionaries(
            {"operator": st.sampled_from(["AND", "OR", "NOT", "and", "XOR"]), "conditions": st.lists(inner, max_size=3)}
        )
        | st.lists(inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REPLIES)
def test_any_reply_becomes_a_filter_that_every_store_reads_alike(store, reference, reply):
    tree, _ = repair(read_filter(reply), SCHEMA, TODAY)
    assert {clause.field for clause in clauses_of(tree)} <= set(NAMES)
    filters = both(BASE, emit(tree))
    matching = found(store, filters)
    assert matching == found(reference, filters)
    assert matching <= found(store, BASE)
    assert matching >= found(store, BASE) & valid_part(reference, read_filter(reply))


def valid_part(store, node, negated=False):
    """Find what the valid part of a reply asks for: each condition asked by itself, the rest set algebra."""
    everything = found(store, None)
    if isinstance(node, Clause):
        tree, _ = repair(Group("NOT", (node,)) if negated else node, SCHEMA, TODAY)
        return found(store, emit(tree))
    if not isinstance(node, Group):
        return everything
    parts = [valid_part(store, part, negated != (node.operator == "NOT")) for part in node.parts]
    if not parts:
        return everything
    return set.union(*parts) if negated != (node.operator == "OR") else everything.intersection(*parts)


def random_filter(chance, depth=0):
    """Draw a portable filter, as it is said and before it is repaired."""
    if depth < 3 and chance.random() < 0.45:
        inner = [random_filter(chance, depth + 1) for _ in range(chance.randrange(1, 4))]
        return {"operator": chance.choice(["AND", "OR", "NOT"]), "conditions": inner}
    field = chance.choice([field for field in SCHEMA.fields if field.operators])
    stored = [document.meta[field.name] for document in DOCUMENTS if field.name in document.meta]
    operator = chance.choice(field.operators)
    value = chance.sample(stored, chance.randrange(1, 4)) if "in" in operator else chance.choice(stored)
    return {"field": field.name, "operator": operator, "value": value}


def random_filters(count, seed=11):
    """Draw portable filters, no two of them the same."""
    chance = random.Random(seed)
    drawn = {}
    while len(drawn) < count:
        tree, notes = repair(read_filter(random_filter(chance)), SCHEMA, TODAY)
        assert not [note for note in notes if note.kind == "dropped"]
        filters = emit(tree)
        drawn[json.dumps(filters)] = filters
    return list(drawn.values())


def assert_same(store, reference, count):
    sizes = set()
    for filters in random_filters(count):
        matching = found(store, filters)
        assert matching == found(reference, filters), filters
        sizes.add(len(matching))
    assert len(sizes) > 20  # the filters tell documents apart


def test_random_filters_give_the_same_documents_in_every_store(store, reference):
    assert_same(store, reference, 150)


@pytest.mark.slow
def test_ten_thousand_random_filters_give_the_same_documents_in_the_embedded_store(tmp_path):
    reference, store = (filled_store(name, documents(25), tmp_path) for name in ("in_memory", "qdrant_edge"))
    assert_same(store, reference, 10_000)
    store.close()
