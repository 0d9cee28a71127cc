"""Loading the package's YAML pipelines, and your own, with settings changed and stores shared."""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import networkx
import yaml
from haystack import Document, Pipeline
from haystack.core.serialization import DeserializationCallbacks, component_to_dict

from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore

# The patterns by the names that people use.
PATTERNS = {
    "parent": "parent",
    "window": "sentence_window",
    "merge": "auto_merging",
    "packed": "packed",
    "summary": "summary_to_detail",
    "self-query": "self_query",
    "compressed": "compressed",
    "reranked": "reranked",
    "full": "full",
}
DEFAULT_PATTERN = "packed"
# What an input may be called in a component.
SOCKETS = {"query": ("query", "question", "text"), "filters": ("filters", "base_filters")}
RESULT_LIMITS = ("top_k", "max_length")

_STORES: WeakValueDictionary[str, Any] = WeakValueDictionary()  # those in use, by their settings
_EMBEDDERS = (".QueryEmbedder", ".LeafEmbedder")


def pipeline_path(name: str | Path) -> Path:
    """
    Find a pipeline file.

    :param name: Path of a YAML file, or the name of one that comes with the package, or of a pattern, such as
        `"parent"`.
    :returns: Its path.
    :raises FileNotFoundError: If there is no such file, with the names that there are.
    """
    path = Path(name)
    if path.suffix in {".yml", ".yaml"} and path.is_file():
        return path
    folder = pipelines_folder()
    if (known := folder / f"{PATTERNS.get(str(name), name)}.yml").is_file():
        return known
    others = {file.stem for file in folder.glob("*.yml")} - {*PATTERNS.values()}
    names = ", ".join([*PATTERNS, *sorted(others)])
    raise FileNotFoundError(f"There is no pipeline {str(name)!r}. Give the path of a YAML file, or one of: {names}")


def pipelines_folder() -> Path:
    """Find the folder of the pipelines that come with the package."""
    package = Path(str(files("haystack_adv_retrieval")))
    installed = package / "_pipelines"
    return installed if installed.is_dir() else package.parent / "pipelines"


def load_pipeline(
    name: str | Path,
    *,
    index: str | Path | None = None,
    embedding_model: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Pipeline:
    """
    Load a pipeline, with settings changed on the way.

    Stores with the same settings become one instance, whichever pipelines they are in, as long as one of these is in
    use. So a store that can be opened only once can still be written by one pipeline and read by another. Embedded
    stores stay apart: those of one folder share what is open by themselves.

    :param name: Path of a YAML file, or the name of one that comes with the package, such as `"parent"`.
    :param index: Folder of the embedded index, instead of the one named in the file or in `ADV_RETRIEVAL_INDEX`.
    :param embedding_model: Name or folder of the embedding model, for every embedder of this package.
    :param overrides: Values of init parameters by `"component.parameter"`, e.g. `{"splitter.block_sizes": [600, 80]}`;
        dots go on into nested parameters.
    :returns: The pipeline.
    :raises FileNotFoundError: If there is no such file.
    :raises ValueError: If the file holds no pipeline, or an override names no component of it.
    """
    data = _read(pipeline_path(name))
    components = data["components"]
    for key, value in (overrides or {}).items():
        component_name, _, parameter = key.partition(".")
        if component_name not in components or not parameter:
            raise ValueError(
                f"overrides has {key!r}, but the pipeline {str(name)!r} has the components {', '.join(components)}"
            )
        _set(components[component_name], f"init_parameters.{parameter}", value)
    for description in _descriptions(components):
        if embedding_model and description["type"].endswith(_EMBEDDERS):
            description.setdefault("init_parameters", {})["model"] = embedding_model
        if index and description["type"].endswith(".QdrantEdgeDocumentStore"):
            description.setdefault("init_parameters", {})["path"] = str(index)
    return Pipeline.loads(
        yaml.safe_dump(data, sort_keys=False),
        allowed_modules=["haystack_adv_retrieval"],
        callbacks=DeserializationCallbacks(component_pre_init=_share_stores),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("components"), dict):
        raise ValueError(f"{path} is no pipeline: it has no components")
    return data


def _set(parameters: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        if parameters.get(parent) is None:
            parameters[parent] = {}
        parameters = parameters[parent]
        if not isinstance(parameters, dict):
            raise ValueError(
                f"overrides sets {path.removeprefix('init_parameters.')!r}, but {parent!r} has no parameters"
            )
    parameters[last] = value


def _descriptions(value: Any) -> Iterator[dict[str, Any]]:
    """Find what describes an object, such as a component or a store in its parameters, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get("type"), str):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _descriptions(part)


def _share_stores(_name: str, _component: type, parameters: dict[str, Any]) -> None:
    store = parameters.get("document_store")
    # Which folder an embedded store opens may be up to the environment, so its settings do not tell.
    if hasattr(store, "to_dict") and not isinstance(store, QdrantEdgeDocumentStore):
        key = json.dumps(component_to_dict(store, "document_store"), sort_keys=True, default=str)
        parameters["document_store"] = _STORES.setdefault(key, store)


def run_pipeline(pipeline: Pipeline, query: str, **values: Any) -> dict[str, Any]:
    """
    Put a query to a pipeline, whatever its components are called.

    :param pipeline: The pipeline. Its free inputs called `query`, `question` or `text` take the query.
    :param query: The query.
    :param values: Further inputs by name; None is not given. Every free input of that name takes the value (`filters`
        go to `base_filters` too), but `top_k` and `max_length`, which limit the result, go to the last component that
        has them.
    :returns: What each component gave out, those between the components included.
    :raises ValueError: If nothing in the pipeline takes a query, or one of the values.
    """
    return pipeline.run(_inputs(pipeline, query, values), include_outputs_from=set(pipeline.graph))


async def run_pipeline_async(pipeline: Pipeline, query: str, **values: Any) -> dict[str, Any]:
    """
    Put a query to a pipeline, asynchronously.

    :param pipeline: As for `run_pipeline`.
    :param query: The query.
    :param values: As for `run_pipeline`.
    :returns: As `run_pipeline`.
    :raises ValueError: As `run_pipeline`.
    """
    return await pipeline.run_async(_inputs(pipeline, query, values), include_outputs_from=set(pipeline.graph))


def _inputs(pipeline: Pipeline, query: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    order, free = _order(pipeline), pipeline.inputs()
    data: dict[str, dict[str, Any]] = {}
    for name, value in {"query": query, **values}.items():
        if value is None:
            continue
        sockets = SOCKETS.get(name, (name,))
        takers = [(part, socket) for part in order for socket in free.get(part, ()) if socket in sockets]
        if not takers:
            raise ValueError(f"No component of the pipeline has a free input for {name}")
        for part, socket in takers[-1:] if name in RESULT_LIMITS else takers:
            data.setdefault(part, {})[socket] = value
    return data


def _order(pipeline: Pipeline) -> list[str]:
    """List the components from first to last; those of a loop, and others side by side, in the order they came in."""
    loops, added = networkx.condensation(pipeline.graph), list(pipeline.graph)
    return [
        name
        for side_by_side in networkx.topological_generations(loops)
        for name in sorted((name for loop in side_by_side for name in loops.nodes[loop]["members"]), key=added.index)
    ]


def last_documents(pipeline: Pipeline, outputs: Mapping[str, Any]) -> list[Document]:
    """
    Read the documents that a pipeline ended with.

    :param pipeline: The pipeline.
    :param outputs: What `run_pipeline` returned.
    :returns: The `documents` of the last component that gave some out.
    :raises ValueError: If no component gives documents out.
    """
    order = [name for name in _order(pipeline) if "documents" in outputs.get(name, {})]
    if not order:
        raise ValueError("No component of the pipeline gives documents out")
    return list(outputs[order[-1]]["documents"])


def retrieve(pipeline: Pipeline, query: str, **values: Any) -> list[Document]:
    """
    Put a query to a pipeline and read the documents that it ends with.

    :param pipeline: As for `run_pipeline`.
    :param query: The query.
    :param values: As for `run_pipeline`, such as `filters`, `top_k` or `max_length`.
    :returns: The documents, best first.
    :raises ValueError: As `run_pipeline`.
    """
    return last_documents(pipeline, run_pipeline(pipeline, query, **values))
