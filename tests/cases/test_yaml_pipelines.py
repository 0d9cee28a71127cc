"""Cases of saved pipelines that came back otherwise, or failed far away from the cause."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from haystack import Document, Pipeline, component
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
from haystack.components.generators.chat import MockChatGenerator, OpenAIChatGenerator
from haystack.components.rankers import LostInTheMiddleRanker
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.core.serialization import component_to_dict
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret
from trees import through_yaml

import haystack_adv_retrieval
from haystack_adv_retrieval import LLMRanker, ParentExpander, QdrantEdgeDocumentStore

PATH = Path(__file__).parents[1] / "data" / "cases" / "yaml_pipelines.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
COMPONENTS = {
    name: part
    for name in haystack_adv_retrieval.__all__
    if (part := getattr(haystack_adv_retrieval, name)) in component.registry.values()
}
PARTS: dict[str, Any] = {
    "<store>": InMemoryDocumentStore,
    "<edge_store>": lambda: QdrantEdgeDocumentStore("index", embedding_dim=4, similarity="dot_product", language="de"),
    "<model>": lambda: MockChatGenerator("said by the mock"),
    "<document_embedder>": lambda: MockDocumentEmbedder(dimension=5),
    "<text_embedder>": lambda: MockTextEmbedder(dimension=5),
    "<retriever>": lambda: InMemoryBM25Retriever(InMemoryDocumentStore(), top_k=7),
    "<ranker>": lambda: LostInTheMiddleRanker(top_k=6),
}


def options_of(case: dict[str, Any]) -> dict[str, Any]:
    return {
        name: PARTS[value]() if isinstance(value, str) and value in PARTS else value
        for name, value in case["options"].items()
    }


def test_every_component_has_a_case() -> None:
    assert set(COMPONENTS) == {case["component"] for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=[case["component"] for case in CASES])
def test_every_option_comes_back(case: dict[str, Any]) -> None:
    made = COMPONENTS[case["component"]](**options_of(case))
    signature = inspect.signature(type(made).__init__).parameters
    defaults = {name: parameter.default for name, parameter in signature.items() if name != "self"}
    assert set(case["options"]) == set(defaults)
    saved = component_to_dict(made, "it")["init_parameters"]
    assert set(saved) == set(defaults)
    unchanged = {name for name, default in defaults.items() if saved[name] == default}
    assert unchanged == set(case.get("at_default", ()))
    assert component_to_dict(through_yaml(made), "it")["init_parameters"] == saved


def test_a_pipeline_loads_without_its_key_and_the_first_use_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline()
    model = OpenAIChatGenerator(Secret.from_env_var("MISSING_KEY"))
    pipeline.add_component("ranker", LLMRanker(model))
    text = pipeline.dumps()
    monkeypatch.delenv("MISSING_KEY", raising=False)
    loaded = Pipeline.loads(text, allowed_modules=["haystack_adv_retrieval"])
    documents = [Document(content="a"), Document(content="b")]
    with pytest.raises(Exception, match="MISSING_KEY"):
        loaded.run({"ranker": {"query": "a", "documents": documents}})


def test_a_file_that_lacks_a_required_option_is_refused_by_the_names_of_both() -> None:
    pipeline = Pipeline()
    pipeline.add_component("expander", ParentExpander(InMemoryDocumentStore()))
    data = yaml.safe_load(pipeline.dumps())
    del data["components"]["expander"]["init_parameters"]["document_store"]
    with pytest.raises(Exception, match="document_store") as caught:
        Pipeline.loads(yaml.safe_dump(data), allowed_modules=["haystack_adv_retrieval"])
    assert "expander" in str(caught.value)
