"""The sources behind an index, and other indexes of the same sources to compare it with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from haystack import Document, Pipeline
from haystack.components.preprocessors import DocumentSplitter
from haystack.document_stores.types import DocumentStore, DuplicatePolicy

from haystack_adv_retrieval.components.leaf_embedder import LeafEmbedder
from haystack_adv_retrieval.components.qdrant_edge_retriever import QdrantEdgeRetriever
from haystack_adv_retrieval.components.query_embedder import QueryEmbedder
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.indexing.documents import index_documents
from haystack_adv_retrieval.pipelines import load_pipeline


def read_sources(document_store: DocumentStore) -> list[Document]:
    """
    Put the indexed texts together again, so that what is measured is what was indexed, whatever the files hold by now.

    :param document_store: The store of an index.
    :returns: One document per source, with its `source_id` and the user's metadata, sorted by `source_id`.
    """
    at_level = {level: {"field": f"meta.{chunks.LEVEL}", "operator": "==", "value": level} for level in (0, 1)}
    records = document_store.filter_documents(at_level[0])
    versions = {record.meta[chunks.SOURCE_ID]: record.meta.get(chunks.SOURCE_VERSION) for record in records}
    texts, metas = dict.fromkeys(sorted(versions), ""), {}
    # The chunks of the coarsest level tile their source; with an overlap they cover it.
    for block in sorted(document_store.filter_documents(at_level[1]), key=lambda block: block.meta[chunks.START]):
        source = block.meta[chunks.SOURCE_ID]
        if versions.get(source) == block.meta[chunks.SOURCE_VERSION]:
            texts[source] += (block.content or "")[len(texts[source]) - block.meta[chunks.START] :]
            metas[source] = chunks.user_meta(block.meta)
    return [
        Document(content=text, meta={**metas[source], chunks.SOURCE_ID: source})
        for source, text in texts.items()
        if source in metas
    ]


def build_index(sources: Sequence[Document], folder: Path, settings: Mapping[str, Any]) -> None:
    """
    Index sources again with other settings.

    :param sources: From `read_sources`.
    :param folder: Folder of the new index.
    :param settings: Settings of the indexing pipeline, such as `{"splitter.block_sizes": [600, 80]}`.
    :raises ValueError: If a setting is not valid.
    """
    pipeline = load_pipeline("indexing", index=folder, overrides=settings)
    splitter, embedder, writer = (
        cast(Any, pipeline.get_component(name)) for name in ("splitter", "embedder", "writer")
    )
    index_documents(sources, writer.document_store, embedder, splitter, raise_on_failure=True)


def fixed_size_baseline(sources: Sequence[Document], folder: Path, *, words: int = 200, top_k: int = 10) -> Pipeline:
    """
    Build what the patterns have to beat: chunks of a fixed number of words, found by their embedding and read as found.

    :param sources: From `read_sources`.
    :param folder: Folder of the index of these chunks.
    :param words: The size of a chunk.
    :param top_k: How many chunks are read.
    :returns: The query pipeline.
    """
    splitter = DocumentSplitter(split_by="word", split_length=words, split_overlap=0)
    whole = [Document(id=source.meta[chunks.SOURCE_ID], content=source.content, meta=source.meta) for source in sources]
    store = QdrantEdgeDocumentStore(str(folder))
    pieces = LeafEmbedder().run(documents=splitter.run(documents=whole)["documents"])["documents"]
    store.write_documents(pieces, policy=DuplicatePolicy.OVERWRITE)
    pipeline = Pipeline()
    pipeline.add_component("embedder", QueryEmbedder())
    pipeline.add_component("retriever", QdrantEdgeRetriever(store, mode="dense", top_k=top_k))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    return pipeline
