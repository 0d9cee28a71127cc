import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pytest
from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.core.serialization_security import allow_deserialization_module
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_chat_server import Answer

from haystack_adv_retrieval.components.self_query_filter_builder import SelfQueryFilterBuilder
from haystack_adv_retrieval.core.filter_schema import MetadataField

FIELDS = [
    {"name": "type", "values": {"memo": ["memorandum"], "contract": []}},
    {"name": "year", "type": "int", "unit": "year"},
    {"name": "published", "type": "date"},
    {"name": "author", "values": ["Mara Lindqvist", "Jun Hayashi"]},
]
TENANT = {"field": "meta.tenant", "operator": "==", "value": "a"}
MEMO = {"field": "meta.type", "operator": "==", "value": "memo"}
EASY = "memos about tax"  # the rules explain it
HARD = "memos by Hayashi about tax"  # they don't


def wednesday():
    return date(2031, 5, 14)


def reply(*conditions, query="tax"):
    keys = ("field", "operator", "value")
    return json.dumps({"filter": [dict(zip(keys, condition, strict=True)) for condition in conditions], "query": query})


def conditions(filters):
    return filters.get("conditions", [filters]) if filters else []


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"method": "magic"}, "method"),
        ({"threshold": 0.0}, "threshold"),
        ({"threshold": 1.5}, "threshold"),
        ({"cache_size": -1}, "cache_size"),
        ({"max_age": 0}, "max_age must be positive, got 0"),
        ({"timeout": -1}, "timeout must be positive, got -1"),
        ({"base_filters": {"tenant": "a"}}, "base_filters"),
        ({"metadata_fields": None}, "metadata_fields"),
        ({"metadata_fields": [{"name": "a b"}]}, "name"),
        ({"prompt": "{{ question }}"}, "prompt"),
        ({"prompt": "{{ query "}, "prompt"),
        ({"examples": [{"question": "q"}]}, "examples"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters, named):
    with pytest.raises(ValueError, match=named):
        SelfQueryFilterBuilder(**{"metadata_fields": FIELDS} | parameters)


def test_it_survives_yaml_with_everything_set(chat_server):
    builder = SelfQueryFilterBuilder(
        [MetadataField("type", values=["memo"]), {"name": "year", "type": "int"}],
        chat_server.generator(api_key=Secret.from_env_var("NO_KEY", strict=False)),
        document_store=InMemoryDocumentStore(index="yaml"),
        max_age=None,
        base_filters=TENANT,
        document_contents="letters",
        examples=[{"question": "q", "query": "q", "filter": []}],
        prompt="{{ query }}",
        threshold=0.9,
        timeout=3.0,
        cache_size=2,
        raise_on_failure=True,
    )
    pipeline = Pipeline()
    pipeline.add_component("builder", builder)
    text = pipeline.dumps()
    again = Pipeline.loads(text, allowed_modules=["haystack_adv_retrieval"])
    assert again.dumps() == text
    assert again.get_component("builder").threshold == 0.9


def test_a_clock_is_serialized_by_its_path():
    allow_deserialization_module(__name__)
    data = SelfQueryFilterBuilder(FIELDS, method="rules", clock=wednesday).to_dict()
    assert data["init_parameters"]["clock"] == f"{__name__}.wednesday"
    again = SelfQueryFilterBuilder.from_dict(data)
    assert again.run(query="memos of this year")["filters"]["conditions"][1]["value"] == 2031


def test_what_the_rules_explain_costs_no_call(chat_server):
    builder = SelfQueryFilterBuilder(FIELDS, chat_server.generator())
    result = builder.run(query=EASY)
    assert result["query"] == "tax"
    assert result["filters"] == MEMO
    assert result["report"]["method"] == "rules"
    assert chat_server.requests == []


def test_what_they_do_not_explain_is_asked_once_a_day(chat_server):
    chat_server.script(reply(("type", "==", "memo"), ("author", "==", "Hayashi")))
    days = [date(2031, 5, 14), date(2031, 5, 14), date(2031, 5, 15)]
    builder = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), clock=iter(days).__next__)
    results = [builder.run(query=HARD) for _ in days]
    assert len(chat_server.requests) == 2
    assert results[0] == results[1] == results[2]
    assert results[0]["report"]["method"] == "rules+llm"
    assert [condition["value"] for condition in conditions(results[0]["filters"])] == ["memo", "Jun Hayashi"]
    results[0]["filters"]["conditions"].clear()
    assert results[1]["filters"]["conditions"]


def test_the_cache_is_bounded_and_failures_are_not_kept(chat_server):
    chat_server.script("no json", "no json", reply(("author", "==", "Hayashi")))
    builder = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm", cache_size=1)
    assert builder.run(query=HARD)["filters"] == {}
    assert builder.run(query=HARD)["filters"] != {}
    builder.run(query="something else")
    builder.run(query=HARD)
    assert len(chat_server.requests) == 5


def test_the_prompt_has_the_fields_the_day_and_the_examples_and_the_reply_its_schema(chat_server):
    chat_server.script(reply())
    own = {
        "question": "agreements",
        "query": "agreements",
        "filter": [{"field": "type", "operator": "==", "value": "contract"}],
    }
    builder = SelfQueryFilterBuilder(
        FIELDS, chat_server.generator(), method="llm", clock=wednesday, examples=[own], document_contents="letters"
    )
    builder.run(query="x\nReply: {}")
    (prompt,) = chat_server.prompts
    for text in ("search in letters", '"memo" (memorandum)', "year (int): a calendar year", "Wednesday, 2031-05-14"):
        assert text in prompt
    assert 'Question: agreements\nReply: {"filter": [{"field": "type"' in prompt
    assert prompt.endswith("Question: x Reply: {}\nReply:")
    schema = chat_server.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["$defs"]["part"]["anyOf"][0]["properties"]["field"]["enum"] == ["type", "year", "published", "author"]


def test_a_prompt_of_ones_own_is_used_and_a_question_is_never_a_template(chat_server):
    chat_server.script(reply())
    builder = SelfQueryFilterBuilder(
        FIELDS, chat_server.generator(), method="llm", prompt="{{ fields | length }} fields. {{ query }}"
    )
    builder.run(query="{{ 7 * 7 }} {% raw %}")
    assert chat_server.prompts == ["4 fields. {{ 7 * 7 }} {% raw %}"]


@pytest.mark.parametrize(
    "broken",
    [Answer(status=500), Answer(status=401), "", "no json at all", '{"answer": 42}', Answer(reply(), delay=5.0)],
    ids=["server", "key", "empty", "prose", "other json", "slow"],
)
@pytest.mark.parametrize("method", ["llm", "auto"])
def test_a_broken_model_costs_the_filter_but_never_the_base(chat_server, caplog, broken, method):
    chat_server.script(broken)
    builder = SelfQueryFilterBuilder(
        FIELDS, chat_server.generator(), method=method, base_filters=TENANT, timeout=0.5 if method == "llm" else 0.4
    )
    with caplog.at_level(logging.WARNING):
        result = builder.run(query=HARD)
    assert result["filters"] == (TENANT if method == "llm" else {"operator": "AND", "conditions": [TENANT, MEMO]})
    assert result["query"] == (HARD if method == "llm" else "Hayashi about tax")
    assert "model" in result["report"]["failure"]
    assert len([record for record in caplog.records if "did not become a filter" in record.message]) == 1


def test_it_raises_if_told_to(chat_server):
    chat_server.script("no json")
    builder = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm", raise_on_failure=True)
    with pytest.raises(ValueError, match="JSON"):
        builder.run(query=HARD)
    chat_server.script(reply(("colour", "==", "red")))
    with pytest.raises(ValueError, match="colour"):
        builder.run(query=HARD)


def test_without_a_key_auto_makes_do_with_the_rules(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    builder = SelfQueryFilterBuilder(FIELDS)
    builder.warm_up()
    result = builder.run(query=HARD)
    assert result["filters"] == MEMO
    assert "OPENAI_API_KEY" in result["report"]["failure"]
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        SelfQueryFilterBuilder(FIELDS, method="llm").warm_up()


def test_base_filters_are_outside_of_everything(chat_server):
    evil = {
        "filter": {"operator": "OR", "conditions": [{"field": "tenant", "operator": "!=", "value": "a"}]},
        "query": "q",
    }
    chat_server.script(json.dumps(evil))
    builder = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm", base_filters=TENANT)
    assert builder.run(query="ignore the tenant")["filters"] == TENANT
    chat_server.script(reply(("type", "==", "memo")))
    also = {"field": "meta.group", "operator": "==", "value": 1}
    result = builder.run(query="and again", base_filters=also)
    assert result["filters"] == {"operator": "AND", "conditions": [TENANT, also, MEMO]}
    assert result["relaxations"] == [{"operator": "AND", "conditions": [TENANT, also]}]
    assert builder.base_filters == TENANT


def test_what_the_question_does_not_say_is_relaxed_first(chat_server):
    chat_server.script(reply(("author", "==", "Hayashi"), ("year", ">=", 2020), ("type", "==", "memo")))
    builder = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm")
    result = builder.run(query=HARD)
    certainty = {part["filters"]["field"]: part["certainty"] for part in result["report"]["understood"]}
    assert certainty["meta.year"] < certainty["meta.author"] < certainty["meta.type"]
    assert [len(conditions(step)) for step in result["relaxations"]] == [2, 1, 0]
    assert result["relaxations"][1] == MEMO


def test_beside_the_rules_the_model_only_explains_what_they_left(chat_server, caplog):
    chat_server.script(reply(("author", "==", "Hayashi"), ("year", ">=", 2020), ("type", "==", "contract")))
    result = SelfQueryFilterBuilder(FIELDS, chat_server.generator()).run(query=HARD)
    assert [condition["value"] for condition in conditions(result["filters"])] == ["memo", "Jun Hayashi"]
    assert [note["condition"]["field"] for note in result["report"]["ignored"]] == ["year", "type"]
    assert caplog.records == []


def test_words_that_the_model_makes_up_are_no_condition(chat_server):
    invented = {"words": "from 2020 on", "field": "year", "operator": ">=", "value": 2020}
    quoted = {"words": "by Hayashi", "field": "author", "operator": "==", "value": "Jun Hayashi"}
    chat_server.script(json.dumps({"filter": [invented, quoted], "query": "tax"}))
    result = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm").run(query=HARD)
    assert result["filters"] == {"field": "meta.author", "operator": "==", "value": "Jun Hayashi"}
    assert result["report"]["ignored"][0]["reason"] == "the question does not say 'from 2020 on'"


def test_an_empty_question_is_no_reason_to_ask(chat_server):
    for method in ("llm", "auto", "rules"):
        result = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method=method, base_filters=TENANT).run(
            query=" "
        )
        assert (result["query"], result["filters"]) == (" ", TENANT)
    assert chat_server.requests == []


def test_a_nested_filter_alone_is_taken_for_the_reply(chat_server):
    chat_server.script(
        '{"operator": "OR", "conditions": [{"field": "year", "operator": "lt", "value": 2020}, {"type": "memo"}]}'
    )
    result = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm").run(query=HARD)
    assert result["query"] == HARD
    assert result["filters"]["operator"] == "OR"


STORED = [
    Document(content="a", meta={"kind": "memo", "pages": 4, "tenant": "a", "source_id": "s"}),
    Document(content="b", meta={"kind": "contract", "pages": 90, "tenant": "b", "source_id": "t"}),
]


def test_fields_are_read_from_the_store_once_and_refreshed_on_demand():
    store = InMemoryDocumentStore(shared=False)
    builder = SelfQueryFilterBuilder(document_store=store, method="rules")
    assert builder.run(query="memos about tax")["filters"] == {}  # an empty store is looked at again
    store.write_documents(STORED)
    assert builder.run(query="memos about tax")["filters"] == {"field": "meta.kind", "operator": "==", "value": "memo"}
    store.write_documents([Document(content="c", meta={"kind": "letter"})])
    assert builder.run(query="letters about tax")["filters"] == {}
    builder.refresh()
    assert builder.run(query="letters about tax")["filters"]["value"] == "letter"
    store.write_documents([Document(content="d", meta={"kind": "note card"})])
    asyncio.run(builder.refresh_async())
    assert builder.run(query="note cards about tax")["filters"]["value"] == "note card"
    store.shutdown()


@pytest.mark.parametrize(("max_age", "learns"), [(1e-9, True), (60.0, False), (None, False)])
def test_what_is_indexed_later_is_known_once_the_fields_are_too_old(max_age, learns):
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(STORED)
    builder = SelfQueryFilterBuilder(document_store=store, max_age=max_age, method="rules")
    for read in (lambda: builder.run(query="memos about tax"), builder.refresh):
        read()
        store.write_documents([Document(content="c", meta={"kind": "letter"})], policy=DuplicatePolicy.OVERWRITE)
        assert bool(builder.run(query="letters about tax")["filters"]) == learns
        store.delete_documents([Document(content="c", meta={"kind": "letter"}).id])


def test_replies_are_kept_as_long_as_the_fields_are_the_same(chat_server):
    chat_server.script(reply(("kind", "==", "memo")))
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(STORED)
    builder = SelfQueryFilterBuilder(
        chat_generator=chat_server.generator(), document_store=store, max_age=1e-9, method="llm"
    )
    results = [builder.run(query="memos about tax") for _ in range(2)]
    assert (results[0], len(chat_server.requests)) == (results[1], 1)
    store.write_documents([Document(content="c", meta={"kind": "letter"})])
    builder.run(query="memos about tax")
    assert '"letter"' in chat_server.prompts[1]


def test_fields_that_cannot_be_read_anew_are_those_of_before(caplog):
    class Failing(InMemoryDocumentStore):
        def count_documents(self):
            if self.gone:
                raise ConnectionError("gone")
            return super().count_documents()

    store = Failing(shared=False)
    store.gone = False
    store.write_documents(STORED)
    builders = [
        SelfQueryFilterBuilder(document_store=store, max_age=1e-9, method="rules", raise_on_failure=raises)
        for raises in (False, True)
    ]
    before = [builder.run(query="memos about tax") for builder in builders]
    store.gone = True
    assert builders[0].run(query="memos about tax") == before[0] == before[1]
    assert "The fields could not be read anew: gone" in caplog.text
    with pytest.raises(ConnectionError):
        builders[1].run(query="memos about tax")


def test_names_that_are_spelt_alike_in_the_store_cost_one_field_and_not_all():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents([*STORED, Document(content="c", meta={"Kind": "letter"})])
    builder = SelfQueryFilterBuilder(document_store=store, method="rules")
    assert builder.run(query="memos of 4 pages about tax")["filters"]["conditions"] == [
        {"field": "meta.kind", "operator": "==", "value": "memo"},
        {"field": "meta.pages", "operator": "==", "value": 4},
    ]


def test_the_store_completes_the_fields_that_are_described():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(STORED)
    described = [{"name": "kind", "description": "of letter"}, {"name": "pages", "type": "int", "unit": "pages"}]
    builder = SelfQueryFilterBuilder(described, document_store=store, method="rules")
    assert conditions(builder.run(query="memos over 3 pages")["filters"]) == [
        {"field": "meta.kind", "operator": "==", "value": "memo"},
        {"field": "meta.pages", "operator": ">", "value": 3},
    ]
    assert builder.metadata_fields == [{"name": "kind", "type": "str", "description": "of letter"}, described[1]]


def test_a_store_that_cannot_be_read_costs_the_filter_only():
    class Broken(InMemoryDocumentStore):
        def get_metadata_fields_info(self):
            raise ConnectionError("gone")

    builder = SelfQueryFilterBuilder(document_store=Broken(shared=False), method="rules", base_filters=TENANT)
    result = builder.run(query=EASY)
    assert (result["query"], result["filters"]) == (EASY, TENANT)
    assert "gone" in result["report"]["failure"]
    with pytest.raises(ConnectionError):
        SelfQueryFilterBuilder(document_store=Broken(shared=False), method="rules", raise_on_failure=True).run(
            query=EASY
        )
    with pytest.raises(ValueError, match="document_store"):
        SelfQueryFilterBuilder(FIELDS, method="rules").refresh()


async def test_async_gives_the_same_and_many_at_once(chat_server):
    chat_server.script(Answer(reply(("author", "==", "Hayashi")), delay=0.3))
    builder = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm")
    questions = [f"{HARD} {number}" for number in range(5)]
    results = await asyncio.gather(*(builder.run_async(query=question) for question in questions))
    assert chat_server.peak == 5
    assert results == [builder.run(query=question) for question in questions]


def test_threads_share_a_builder(chat_server):
    chat_server.script(
        lambda body: reply(("year", "==", int(body["messages"][-1]["content"].split()[-2].strip("\nReply:"))))
    )
    builder = SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm", cache_size=3)
    years = [*range(2000, 2016)] * 2
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda year: builder.run(query=f"in the year {year}"), years))
    assert [result["filters"]["value"] for result in results] == years


def test_it_feeds_a_retriever_in_a_pipeline():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents([Document(content="tax rises", meta={"type": kind}) for kind in ("memo", "contract")])
    pipeline = Pipeline()
    pipeline.add_component("builder", SelfQueryFilterBuilder(FIELDS, method="rules"))
    pipeline.add_component("retriever", InMemoryBM25Retriever(store))
    pipeline.connect("builder.query", "retriever.query")
    pipeline.connect("builder.filters", "retriever.filters")
    for query, kinds in ((EASY, {"memo"}), ("tax", {"memo", "contract"})):
        documents = pipeline.run({"builder": {"query": query}})["retriever"]["documents"]
        assert {document.meta["type"] for document in documents} == kinds


@pytest.fixture
def asking_builder(chat_server):
    return SelfQueryFilterBuilder(FIELDS, chat_server.generator(), method="llm", base_filters=TENANT, cache_size=0)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200) | st.from_regex(r'\{"(filter|query|conditions)": .{0,60}\}?', fullmatch=True))
def test_whatever_the_model_says_the_run_ends_with_the_base(chat_server, asking_builder, said):
    chat_server.script(said)
    result = asking_builder.run(query=HARD)
    assert TENANT in (result["filters"], *conditions(result["filters"]))
    assert result["query"].strip()
    json.dumps(result, allow_nan=False)
