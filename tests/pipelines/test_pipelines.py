"""Every YAML file in `pipelines/`: loads as it is, runs on a real index, sync and async."""

import asyncio
import gc
import json
import shutil
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import yaml
from haystack import Document, Pipeline, component
from haystack.components.joiners import ListJoiner
from haystack.document_stores.in_memory import InMemoryDocumentStore
from scripted_chat_server import Answer, ChatServer

from haystack_adv_retrieval import LLMRanker, ParentExpander, SelfQueryFilterBuilder, load_pipeline, retrieve
from haystack_adv_retrieval.core.chunks import KEPT_SPANS, MATCHED_SPANS, SOURCE_ID, span_of
from haystack_adv_retrieval.pipelines import (
    PATTERNS,
    last_documents,
    pipelines_folder,
    run_pipeline,
    run_pipeline_async,
)

FILES = sorted(pipelines_folder().glob("*.yml"))
QUESTION = "How many days does it take until the refund for a station is paid?"
NEED_A_MODEL = {"reranked", "full"}


@pytest.fixture
def a_model(chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> ChatServer:
    """The default chat model, on a scripted server that ranks whatever it is shown."""
    chat_server.script("[2, 1, 3]")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    return chat_server


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_loads_with_plain_haystack_and_declares_its_sockets(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "haystack_adv_retrieval")
    text = path.read_text(encoding="utf-8")
    pipeline, declared = Pipeline.loads(text), yaml.safe_load(text)
    free, given = pipeline.inputs(), pipeline.outputs(include_components_with_connected_outputs=True)
    for sockets in declared["inputs"].values():
        for socket in [sockets] if isinstance(sockets, str) else sockets:
            name, _, field = socket.partition(".")
            assert field in free[name]
    for socket in declared["outputs"].values():
        name, _, field = socket.partition(".")
        assert field in given[name]
    needed = {
        f"{name}.{field}" for name, fields in free.items() for field, about in fields.items() if about["is_mandatory"]
    }
    asked = {
        socket for value in declared["inputs"].values() for socket in ([value] if isinstance(value, str) else value)
    }
    assert needed <= asked, "one question is enough"
    again = Pipeline.loads(pipeline.dumps())
    assert again.to_dict()["components"] == pipeline.to_dict()["components"]
    assert set(again.graph.edges) == set(pipeline.graph.edges)


@pytest.mark.usefixtures("a_model")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_answers_from_the_right_section(pattern: str, handbook_index: Path):
    pipeline = load_pipeline(pattern, index=handbook_index)
    documents = retrieve(pipeline, QUESTION)
    assert any("within 14 days of this" in (document.content or "") for document in documents)
    source = next(d for d in documents if "within 14 days of this" in (d.content or "")).meta[SOURCE_ID]
    text = Path(source).read_text(encoding="utf-8")
    for document in documents:
        if document.meta[SOURCE_ID] == source:
            spans = document.meta.get(KEPT_SPANS) or [span_of(document.meta)]
            assert all(text[start:end] in document.content for start, end in spans)
            assert document.meta[MATCHED_SPANS]


@pytest.mark.parametrize("pattern", sorted(NEED_A_MODEL))
async def test_a_model_that_never_replies_costs_less_than_a_server_waits(
    pattern: str, handbook_index: Path, a_model: ChatServer
):
    a_model.script(Answer(delay=60))
    parts = dict(load_pipeline(pattern, index=handbook_index).walk())
    waits = {name: part.timeout for name, part in parts.items() if isinstance(part, LLMRanker | SelfQueryFilterBuilder)}
    assert 60 <= sum(waits.values()) <= 100
    hasty = load_pipeline(pattern, index=handbook_index, overrides={f"{name}.timeout": 0.2 for name in waits})
    documents = last_documents(hasty, await run_pipeline_async(hasty, QUESTION))
    assert any("within 14 days of this" in (document.content or "") for document in documents)
    assert len(a_model.requests) >= len(waits) - 1  # a builder may need no model


@pytest.mark.parametrize("pattern", sorted(set(PATTERNS) - NEED_A_MODEL))
async def test_async_gives_the_same(pattern: str, handbook_index: Path):
    pipeline = load_pipeline(pattern, index=handbook_index)
    sync = last_documents(pipeline, run_pipeline(pipeline, QUESTION))
    results = await asyncio.gather(*(run_pipeline_async(pipeline, QUESTION) for _ in range(3)))
    for outputs in results:
        assert [document.content for document in last_documents(pipeline, outputs)] == [d.content for d in sync]


def test_settings_can_be_changed_without_editing(handbook_index: Path):
    pipeline = load_pipeline(
        "window", index=handbook_index, overrides={"expander.window_size": 0, "retriever.top_k": 1}
    )
    assert len(retrieve(pipeline, QUESTION)) == 1
    with pytest.raises(ValueError, match="expandr"):
        load_pipeline("window", overrides={"expandr.window_size": 0})


def test_the_embedding_model_reaches_every_embedder_wherever_it_is(tmp_path: Path):
    data = yaml.safe_load((pipelines_folder() / "indexing.yml").read_text(encoding="utf-8"))
    file = tmp_path / "mine.yml"
    file.write_text(json.dumps(data))  # JSON has no anchors: the embedder inside `diff` is described on its own
    for path in ("indexing", file):
        pipeline = load_pipeline(path, index=tmp_path / "index", embedding_model="a/model")
        assert pipeline.get_component("embedder").model == "a/model"
        assert pipeline.get_component("diff").embedder.model == "a/model"
        assert pipeline.get_component("diff").document_store.path == str(tmp_path / "index")
    full = load_pipeline("full", index=tmp_path / "index", embedding_model="a/model")
    assert full.get_component("embedder").model == "a/model"
    assert full.get_component("retriever").retriever.document_store.path == str(tmp_path / "index")


def test_a_pipeline_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(FileNotFoundError, match=r"no pipeline 'parents'.*parent, window.*search_everything"):
        load_pipeline("parents")


def test_the_question_of_a_filter_reaches_only_what_satisfies_it(handbook_index: Path):
    filters = {"field": "meta.type", "operator": "==", "value": "report"}
    for pattern in ("parent", "summary", "self-query"):
        documents = retrieve(load_pipeline(pattern, index=handbook_index), QUESTION, filters=filters)
        assert documents
        assert {document.meta["type"] for document in documents} == {"report"}


def test_an_input_that_nothing_takes_is_an_error(handbook_index: Path):
    with pytest.raises(ValueError, match="window_sizes"):
        retrieve(load_pipeline("window", index=handbook_index), QUESTION, window_sizes=3)


@pytest.mark.usefixtures("a_model")
def test_ranking_can_come_after_expanding(handbook_index: Path):
    path = Path(__file__).parent.parent.parent / "examples" / "rerank_parents.yml"
    documents = retrieve(load_pipeline(path, index=handbook_index), QUESTION)
    assert [document.meta["initial_rank"] for document in documents][:3] == [2, 1, 3]
    assert any("within 14 days of this" in document.content for document in documents)


@component
class Search:
    """Finds what it is asked for."""

    @component.output_types(documents=list[Document])
    def run(self, query: str, wider: str | None = None, top_k: int = 9) -> dict[str, Any]:
        return {"documents": [Document(content=f"{wider or query} {number}") for number in range(top_k)]}


@component
class Judge:
    """Asks for more once."""

    @component.output_types(documents=list[Document], wider=str)
    def run(self, documents: list[Document], top_k: int = 9) -> dict[str, Any]:
        if "wider" not in (documents[0].content or ""):
            return {"wider": "wider"}
        return {"documents": documents[:top_k]}


def test_a_pipeline_with_a_loop_is_asked_like_any_other():
    pipeline = Pipeline()
    pipeline.add_component("end", ListJoiner(list[Document]))
    pipeline.add_component("search", Search())
    pipeline.add_component("judge", Judge())
    pipeline.connect("search.documents", "judge.documents")
    pipeline.connect("judge.wider", "search.wider")
    pipeline.connect("judge.documents", "end.values")
    assert [document.content for document in retrieve(pipeline, "q", top_k=2)] == ["wider 0", "wider 1"]
    outputs = run_pipeline(pipeline, "q", top_k=2)
    assert len(outputs["search"]["documents"]) == 9, "the limit goes to the last component that has one"


def stores_of(pipeline: Pipeline) -> list[Any]:
    parts = [pipeline.get_component(name) for name in pipeline.graph]
    return [part.document_store for part in parts if hasattr(part, "document_store")]


@pytest.fixture
def in_memory(tmp_path: Path) -> Path:
    """A pipeline file whose two components have a store in common that shares nothing by itself."""
    pipeline, store = Pipeline(), InMemoryDocumentStore(shared=False)
    for name in ("one", "other"):
        pipeline.add_component(name, ParentExpander(store))
    file = tmp_path / "in_memory.yml"
    file.write_text(pipeline.dumps(), encoding="utf-8")
    return file


def test_stores_with_the_same_settings_are_one_as_long_as_they_are_in_use(in_memory: Path):
    pipeline = load_pipeline(in_memory)
    one, other = stores_of(pipeline)
    assert one is other
    assert stores_of(load_pipeline(in_memory))[0] is one
    one.write_documents([Document(content="held")])
    unused = weakref.ref(one)
    del pipeline, one, other
    gc.collect()
    assert unused() is None
    assert stores_of(load_pipeline(in_memory))[0].count_documents() == 0


def test_embedded_stores_follow_the_environment_and_share_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ADV_RETRIEVAL_INDEX", str(tmp_path / "a"))
    writer = stores_of(load_pipeline("indexing"))[0]
    writer.write_documents([Document(content="of a")])
    for store in (*stores_of(load_pipeline("packed")), *stores_of(load_pipeline("parent", index=tmp_path / "a"))):
        assert [document.content for document in store.filter_documents()] == ["of a"]
    monkeypatch.setenv("ADV_RETRIEVAL_INDEX", str(tmp_path / "b"))
    for store in stores_of(load_pipeline("packed")):
        assert store.folder == str((tmp_path / "b").resolve())
        assert store.count_documents() == 0


def test_the_index_of_a_pipeline_that_is_gone_is_closed(tmp_path: Path):
    stores_of(load_pipeline("packed", index=tmp_path / "here"))[0].write_documents([Document(content="a")])
    gc.collect()
    (tmp_path / "here").rename(tmp_path / "there")
    (again,) = {store.folder: store for store in stores_of(load_pipeline("packed", index=tmp_path / "there"))}.values()
    assert [document.content for document in again.filter_documents()] == ["a"]


def test_a_deleted_index_is_made_anew_though_a_pipeline_still_holds_it(tmp_path: Path):
    folder = tmp_path / "index"
    before = stores_of(load_pipeline("packed", index=folder))[0]
    before.write_documents([Document(content="deleted")])
    shutil.rmtree(folder)
    after = stores_of(load_pipeline("packed", index=folder))[0]
    after.write_documents([Document(content="new")])
    before.close()
    reader = stores_of(load_pipeline("packed", index=folder))[0]
    assert [document.content for document in reader.filter_documents()] == ["new"]
    assert (folder / "shard").is_dir()


async def test_slow_models_do_not_hold_other_requests_up(handbook_index: Path, a_model: ChatServer):
    from scripted_chat_server import Answer

    a_model.script(Answer("[2, 1, 3]", delay=0.6))
    pipeline = load_pipeline("reranked", index=handbook_index)
    await run_pipeline_async(pipeline, QUESTION)
    started = time.monotonic()
    await asyncio.gather(*(run_pipeline_async(pipeline, QUESTION) for _ in range(5)))
    alone = len(a_model.requests) / 6 * 0.6
    assert time.monotonic() - started < 5 * alone
