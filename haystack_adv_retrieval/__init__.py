"""
Advanced retrieval for Haystack 3: search small units, read large ones, over one index.

The names below are in the order of a pipeline. They are imported when first used, so that importing the package loads
neither a model library nor a search engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "FileReader": "components.file_reader",
    "HierarchicalSplitter": "components.hierarchical_splitter",
    "LeafEmbedder": "components.leaf_embedder",
    "QdrantEdgeDocumentStore": "document_stores.qdrant_edge_document_store",
    "QueryEmbedder": "components.query_embedder",
    "QdrantEdgeRetriever": "components.qdrant_edge_retriever",
    "ParentExpander": "components.parent_expander",
    "SentenceWindowExpander": "components.sentence_window_expander",
    "AutoMerger": "components.auto_merger",
    "load_pipeline": "pipelines",
}

if TYPE_CHECKING:
    from haystack_adv_retrieval.components.auto_merger import AutoMerger as AutoMerger
    from haystack_adv_retrieval.components.file_reader import FileReader as FileReader
    from haystack_adv_retrieval.components.hierarchical_splitter import HierarchicalSplitter as HierarchicalSplitter
    from haystack_adv_retrieval.components.leaf_embedder import LeafEmbedder as LeafEmbedder
    from haystack_adv_retrieval.components.parent_expander import ParentExpander as ParentExpander
    from haystack_adv_retrieval.components.qdrant_edge_retriever import QdrantEdgeRetriever as QdrantEdgeRetriever
    from haystack_adv_retrieval.components.query_embedder import QueryEmbedder as QueryEmbedder
    from haystack_adv_retrieval.components.sentence_window_expander import (
        SentenceWindowExpander as SentenceWindowExpander,
    )
    from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import (
        QdrantEdgeDocumentStore as QdrantEdgeDocumentStore,
    )
    from haystack_adv_retrieval.pipelines import load_pipeline as load_pipeline

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
