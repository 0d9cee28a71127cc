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
    "SectionSummarizer": "components.section_summarizer",
    "IndexDiff": "components.index_diff",
    "LeafEmbedder": "components.leaf_embedder",
    "IndexWriter": "components.index_writer",
    "index_documents": "indexing.documents",
    "index_documents_async": "indexing.documents",
    "IndexReport": "indexing.documents",
    "delete_sources": "indexing.documents",
    "status": "indexing.maintenance",
    "prune": "indexing.maintenance",
    "QdrantEdgeDocumentStore": "document_stores.qdrant_edge_document_store",
    "MetadataField": "core.filter_schema",
    "SelfQueryFilterBuilder": "components.self_query_filter_builder",
    "schema_from_store": "store_fields",
    "QueryEmbedder": "components.query_embedder",
    "QdrantEdgeRetriever": "components.qdrant_edge_retriever",
    "FilteredRetriever": "components.filtered_retriever",
    "SummaryRouter": "components.summary_router",
    "RoutedRetriever": "components.routed_retriever",
    "LLMRanker": "components.llm_ranker",
    "ParentExpander": "components.parent_expander",
    "SentenceWindowExpander": "components.sentence_window_expander",
    "AutoMerger": "components.auto_merger",
    "ContextPacker": "components.context_packer",
    "Compressor": "components.compressor",
    "load_pipeline": "pipelines",
    "run_pipeline": "pipelines",
    "retrieve": "pipelines",
}

if TYPE_CHECKING:
    from haystack_adv_retrieval.components.auto_merger import AutoMerger as AutoMerger
    from haystack_adv_retrieval.components.compressor import Compressor as Compressor
    from haystack_adv_retrieval.components.context_packer import ContextPacker as ContextPacker
    from haystack_adv_retrieval.components.file_reader import FileReader as FileReader
    from haystack_adv_retrieval.components.filtered_retriever import FilteredRetriever as FilteredRetriever
    from haystack_adv_retrieval.components.hierarchical_splitter import HierarchicalSplitter as HierarchicalSplitter
    from haystack_adv_retrieval.components.index_diff import IndexDiff as IndexDiff
    from haystack_adv_retrieval.components.index_writer import IndexWriter as IndexWriter
    from haystack_adv_retrieval.components.leaf_embedder import LeafEmbedder as LeafEmbedder
    from haystack_adv_retrieval.components.llm_ranker import LLMRanker as LLMRanker
    from haystack_adv_retrieval.components.parent_expander import ParentExpander as ParentExpander
    from haystack_adv_retrieval.components.qdrant_edge_retriever import QdrantEdgeRetriever as QdrantEdgeRetriever
    from haystack_adv_retrieval.components.query_embedder import QueryEmbedder as QueryEmbedder
    from haystack_adv_retrieval.components.routed_retriever import RoutedRetriever as RoutedRetriever
    from haystack_adv_retrieval.components.section_summarizer import SectionSummarizer as SectionSummarizer
    from haystack_adv_retrieval.components.self_query_filter_builder import (
        SelfQueryFilterBuilder as SelfQueryFilterBuilder,
    )
    from haystack_adv_retrieval.components.sentence_window_expander import (
        SentenceWindowExpander as SentenceWindowExpander,
    )
    from haystack_adv_retrieval.components.summary_router import SummaryRouter as SummaryRouter
    from haystack_adv_retrieval.core.filter_schema import MetadataField as MetadataField
    from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import (
        QdrantEdgeDocumentStore as QdrantEdgeDocumentStore,
    )
    from haystack_adv_retrieval.indexing.documents import IndexReport as IndexReport
    from haystack_adv_retrieval.indexing.documents import delete_sources as delete_sources
    from haystack_adv_retrieval.indexing.documents import index_documents as index_documents
    from haystack_adv_retrieval.indexing.documents import index_documents_async as index_documents_async
    from haystack_adv_retrieval.indexing.maintenance import prune as prune
    from haystack_adv_retrieval.indexing.maintenance import status as status
    from haystack_adv_retrieval.pipelines import load_pipeline as load_pipeline
    from haystack_adv_retrieval.pipelines import retrieve as retrieve
    from haystack_adv_retrieval.pipelines import run_pipeline as run_pipeline
    from haystack_adv_retrieval.store_fields import schema_from_store as schema_from_store

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
