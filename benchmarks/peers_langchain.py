"""LangChain's splitters and its retrievers for parents, ensembles and compression."""

import re
from collections.abc import Callable, Mapping, Sequence

import nltk
from embeddings import BruteForce, Encoder
from haystack import Document as HaystackDocument
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever, ParentDocumentRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline, EmbeddingsFilter
from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.stores import InMemoryStore
from langchain_core.vectorstores import VectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter, TextSplitter

from haystack_adv_retrieval.evaluation.strategies import Answer, Strategy

Compress = Callable[[str, Sequence[HaystackDocument]], list[HaystackDocument]]


def strategies(corpus: Mapping[str, str], encoder: Encoder) -> dict[str, Strategy]:
    return {
        "LangChain recursive 200t": recursive(corpus, encoder, bm25=False),
        "LangChain recursive 200t + bm25 rrf": recursive(corpus, encoder, bm25=True),
        "LangChain parent 400/2000": answers(parents(corpus, encoder, overlap=0)),
        "LangChain parent 400/2000 overlap 200": answers(parents(corpus, encoder, overlap=200)),
        "LangChain compress sentences k60": compress(corpus, encoder, k=60),
    }


class Exact(VectorStore):
    """Exact search, in place of the one in memory, which is slow."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def add_documents(self, documents, **_):
        self.documents = documents
        self.index = BruteForce(self.encoder, [document.page_content for document in documents])

    def similarity_search(self, query, k=4, **_):
        return [self.documents[place] for place, _ in self.index.search(query, k)]

    @classmethod
    def from_texts(cls, texts, embedding, metadatas=None, **kwargs):
        raise NotImplementedError


class Encoded(Embeddings):
    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def embed_documents(self, texts):
        return self.encoder.encode(texts).tolist()

    def embed_query(self, text):
        return self.encoder.encode([text])[0].tolist()


class Sentences(TextSplitter):
    """One sentence a chunk, by NLTK; LangChain's own splitter of that name joins them again."""

    def split_text(self, text):
        return nltk.sent_tokenize(text)


def answers(retriever) -> Strategy:
    def ask(query: str) -> Answer:
        results = []
        for found in retriever.invoke(query):
            meta = {"source_id": found.metadata["source"], "split_idx_start": found.metadata["start_index"]}
            results.append(HaystackDocument(content=found.page_content, meta=meta))
        return Answer(results)

    return ask


def documents_of(corpus: Mapping[str, str]) -> list[Document]:
    return [Document(page_content=text, metadata={"source": source}) for source, text in corpus.items()]


def recursive(corpus: Mapping[str, str], encoder: Encoder, *, bm25: bool, k: int = 40) -> Strategy:
    splitter = RecursiveCharacterTextSplitter.from_tiktoken_encoder(
        "cl100k_base", chunk_size=200, chunk_overlap=0, add_start_index=True
    )
    chunks = splitter.split_documents(documents_of(corpus))
    for number, chunk in enumerate(chunks):
        chunk.metadata["number"] = number  # else the ensemble adds up the ranks of all chunks with the same text
    store = Exact(encoder)
    store.add_documents(chunks)
    dense = store.as_retriever(search_kwargs={"k": k})
    if not bm25:
        return answers(dense)
    words = BM25Retriever.from_documents(chunks, k=k, preprocess_func=lambda text: re.findall(r"\w+", text.lower()))
    return answers(EnsembleRetriever(retrievers=[dense, words], weights=[0.5, 0.5], id_key="number"))


def parents(corpus: Mapping[str, str], encoder: Encoder, *, overlap: int, k: int = 40) -> ParentDocumentRetriever:
    def splitter(size: int, repeated: int) -> RecursiveCharacterTextSplitter:
        return RecursiveCharacterTextSplitter(chunk_size=size, chunk_overlap=repeated, add_start_index=True)

    retriever = ParentDocumentRetriever(
        vectorstore=Exact(encoder),
        docstore=InMemoryStore(),
        child_splitter=splitter(400, 0),
        parent_splitter=splitter(2000, overlap),
        search_kwargs={"k": k},
    )
    retriever.add_documents(documents_of(corpus))
    return retriever


def compress(corpus: Mapping[str, str], encoder: Encoder, *, k: int) -> Strategy:
    base = parents(corpus, encoder, overlap=200)
    everything = [base.docstore.store[key] for key in base.docstore.yield_keys()]
    encoder.encode(list({one.page_content for one in Sentences().split_documents(everything)}))
    retriever = ContextualCompressionRetriever(base_compressor=sentences_by_embedding(encoder, k), base_retriever=base)

    def ask(query: str) -> Answer:
        return Answer([in_source(found, corpus[found.metadata["source"]]) for found in retriever.invoke(query)])

    return ask


def sentence_filter(corpus: Mapping[str, str], encoder: Encoder, *, k: int) -> Compress:
    """Compress documents that are given, and not those that LangChain finds."""
    pipeline = sentences_by_embedding(encoder, k)

    def filtered(query: str, documents: Sequence[HaystackDocument]) -> list[HaystackDocument]:
        given = [
            Document(
                page_content=one.content,
                metadata={"source": one.meta["source_id"], "start_index": one.meta["split_idx_start"]},
            )
            for one in documents
        ]
        kept = pipeline.compress_documents(given, query)
        return [in_source(one, corpus[one.metadata["source"]]) for one in kept]

    return filtered


def sentences_by_embedding(encoder: Encoder, k: int) -> DocumentCompressorPipeline:
    return DocumentCompressorPipeline(transformers=[Sentences(), EmbeddingsFilter(embeddings=Encoded(encoder), k=k)])


def in_source(sentence: Document, text: str) -> HaystackDocument:
    # The parent's offset is kept; the sentence stands at or after it.
    start = text.index(sentence.page_content, sentence.metadata["start_index"])
    meta = {"source_id": sentence.metadata["source"], "split_idx_start": start}
    return HaystackDocument(content=sentence.page_content, meta=meta)
