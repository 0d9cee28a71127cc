"""Retrieval from the embedded store: by embedding, by BM25, or by both."""

from typing import Any, Literal

from haystack import Document, component

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.parameters import check_at_least, check_choice
from haystack_adv_retrieval.stores import both

Mode = Literal["hybrid", "dense", "bm25"]


@component
class QdrantEdgeRetriever:
    """
    Finds documents of a QdrantEdgeDocumentStore by embedding, by BM25, or by both.

    Embeddings find what means the same, BM25 finds the exact word: a part number, a name, a rare term. The hybrid mode
    runs both inside the engine and fuses them by rank, so neither scale of scores has to be tuned.

    ```python
    from haystack import Document
    from haystack_adv_retrieval import QdrantEdgeDocumentStore, QdrantEdgeRetriever

    store = QdrantEdgeDocumentStore("./index")
    store.write_documents([Document(content="Refunds take five days.", embedding=[0.1, 0.9])])
    retriever = QdrantEdgeRetriever(store, top_k=3)
    retriever.run(query="refunds", query_embedding=[0.2, 0.8])["documents"]
    ```
    """

    def __init__(
        self,
        document_store: QdrantEdgeDocumentStore,
        mode: Mode = "hybrid",
        top_k: int = 10,
        *,
        filters: dict[str, Any] | None = None,
        candidates: int | None = None,
        return_embedding: bool = False,
    ) -> None:
        """
        Create the retriever.

        :param document_store: The store.
        :param mode: "hybrid", "dense" (by embedding) or "bm25" (by text).
        :param top_k: How many documents to return at most.
        :param filters: A Haystack filter that every result satisfies; one given to `run` can only narrow it.
        :param candidates: How many documents each of the hybrid mode's two searches adds to the fusion. None: 100, and
            never less than `top_k`.
        :param return_embedding: Whether the documents carry their embeddings.
        :raises ValueError: If a parameter is out of range.
        """
        if not isinstance(document_store, QdrantEdgeDocumentStore):
            raise ValueError(f"document_store must be a QdrantEdgeDocumentStore, got {document_store!r}")
        check_choice("mode", mode, Mode)
        check_at_least(1, top_k=top_k, candidates=candidates)
        self.document_store = document_store
        self.mode = mode
        self.top_k = top_k
        self.filters = filters
        self.candidates = candidates
        self.return_embedding = return_embedding

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str | None = None,
        query_embedding: list[float] | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """
        Search.

        :param query: The text; needed by "bm25". The hybrid mode takes what it is given of the two.
        :param query_embedding: The embedding; needed by "dense".
        :param filters: A Haystack filter, in addition to the one given at init.
        :param top_k: How many documents to return at most; None: as given at init.
        :returns: `documents`, best first. Their score is the similarity of "dense" (for a euclidean store the distance,
            where less is better), the BM25 score of "bm25", and of "hybrid" the sum of 1 / (60 + position) over the two
            searches, with positions from 0.
        :raises ValueError: If the mode needs an input that is missing, or `top_k` is less than 1.
        """
        return {"documents": drive(self._search(query, query_embedding, filters, top_k))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str | None = None,
        query_embedding: list[float] | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """
        Search asynchronously; see `run`.

        :param query: The text.
        :param query_embedding: The embedding.
        :param filters: A Haystack filter, in addition to the one given at init.
        :param top_k: How many documents to return at most; None: as given at init.
        :returns: `documents`, best first.
        """
        return {"documents": await drive_async(self._search(query, query_embedding, filters, top_k))}

    def _search(
        self,
        query: str | None,
        query_embedding: list[float] | None,
        filters: dict[str, Any] | None,
        top_k: int | None,
    ) -> Steps[list[Document]]:
        if self.mode == "bm25" and not query:
            raise ValueError("query must be a non-empty string in mode 'bm25'")
        if self.mode == "dense" and not query_embedding:
            raise ValueError("query_embedding must be given in mode 'dense'")
        if not query and not query_embedding:
            raise ValueError("query or query_embedding must be given in mode 'hybrid'")
        documents: list[Document] = yield Call(
            self.document_store,
            "search",
            {
                "query": query if query and self.mode != "dense" else None,
                "query_embedding": query_embedding if query_embedding and self.mode != "bm25" else None,
                "filters": both(self.filters, filters),
                "top_k": self.top_k if top_k is None else top_k,
                "candidates": self.candidates,
                "return_embedding": self.return_embedding,
            },
        )
        return documents
