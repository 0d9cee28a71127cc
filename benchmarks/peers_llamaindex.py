"""LlamaIndex's node parsers, its auto-merging retriever and its sentence windows."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import nltk
from embeddings import BruteForce, Encoder
from haystack import Document as HaystackDocument
from llama_index.core import Document, StorageContext
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import HierarchicalNodeParser, SentenceWindowNodeParser, get_leaf_nodes
from llama_index.core.postprocessor import MetadataReplacementPostProcessor, SentenceEmbeddingOptimizer
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from haystack_adv_retrieval.evaluation.strategies import Answer, Strategy

Compress = Callable[[str, Sequence[HaystackDocument]], list[HaystackDocument]]


def strategies(corpus: Mapping[str, str], encoder: Encoder) -> dict[str, Strategy]:
    return {
        "LlamaIndex hier 2048/512/128 leaves": hierarchy(corpus, encoder, merge=False, k=40),
        "LlamaIndex automerge 2048/512/128 k12": hierarchy(corpus, encoder, merge=True, k=12),
        "LlamaIndex sentence-window 1": sentence_window(corpus, encoder, 1),
        "LlamaIndex sentence-window 3": sentence_window(corpus, encoder, 3),
    }


class Exact(BaseRetriever):
    """Exact search over the text that LlamaIndex would embed."""

    def __init__(self, nodes: Sequence, encoder: Encoder, k: int) -> None:
        super().__init__()
        self.nodes, self.k = nodes, k
        self.index = BruteForce(encoder, [node.get_content(MetadataMode.EMBED) for node in nodes])

    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=self.nodes[p], score=s) for p, s in self.index.search(query_bundle.query_str, self.k)
        ]


class Encoded(BaseEmbedding):
    _encoder: Encoder

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self._encoder = encoder

    def _get_query_embedding(self, query):
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)

    def _get_text_embedding(self, text):
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts):
        return self._encoder.encode(texts).tolist()


def documents_of(corpus: Mapping[str, str]) -> list[Document]:
    return [Document(id_=source, text=text) for source, text in corpus.items()]


def hierarchy(corpus: Mapping[str, str], encoder: Encoder, *, merge: bool, k: int) -> Strategy:
    nodes = HierarchicalNodeParser.from_defaults([2048, 512, 128]).get_nodes_from_documents(documents_of(corpus))
    by_id = {node.node_id: node for node in nodes}
    retriever: BaseRetriever = Exact(get_leaf_nodes(nodes), encoder, k)
    if merge:
        store = SimpleDocumentStore()
        store.add_documents(nodes)
        retriever = AutoMergingRetriever(retriever, StorageContext.from_defaults(docstore=store))

    def address(node) -> tuple[str, int]:
        """Find the source of a node and where it starts there: its own offset is the one within its parent."""
        parent = by_id.get(node.parent_node.node_id) if node.parent_node else None
        source, base = address(parent) if parent else (node.source_node.node_id, 0)
        start = base + node.start_char_idx
        if corpus[source][start : start + len(node.text)] != node.text:
            start = corpus[source].index(node.text, base)
        return source, start

    def ask(query: str) -> Answer:
        results = []
        for found in retriever.retrieve(query):
            source, start = address(found.node)
            meta = {"source_id": source, "split_idx_start": start}
            results.append(HaystackDocument(content=found.node.text, meta=meta, score=found.score))
        return Answer(results)

    return ask


def sentence_window(corpus: Mapping[str, str], encoder: Encoder, window: int, k: int = 40) -> Strategy:
    nodes = SentenceWindowNodeParser.from_defaults(window_size=window).get_nodes_from_documents(documents_of(corpus))
    spans: dict[str, tuple[str, int, int]] = {}
    for source, group in groupby(nodes, key=lambda node: node.ref_doc_id):
        position, siblings = 0, []
        for node in group:
            start = corpus[source].index(node.text, position)
            position = start + len(node.text)
            siblings.append((node, start, position))
        for place, (node, _, _) in enumerate(siblings):
            shown = siblings[max(0, place - window) : place + window + 1]
            spans[node.node_id] = source, shown[0][1], shown[-1][2]
    retriever = Exact(nodes, encoder, k)
    replacement = MetadataReplacementPostProcessor(target_metadata_key="window")

    def ask(query: str) -> Answer:
        results = []
        for found in retriever.retrieve(query):
            source, start, end = spans[found.node.node_id]
            assert replacement.postprocess_nodes([found])  # joins the sentences with blanks; measured in the source
            meta = {"source_id": source, "split_idx_start": start, "split_idx_end": end}
            results.append(HaystackDocument(content=corpus[source][start:end], meta=meta, score=found.score))
        return Answer(results)

    return ask


def sentence_optimizer(encoder: Encoder, share: float) -> Compress:
    """Keep a share of the sentences of each document that is given, the nearest first."""
    optimizer = SentenceEmbeddingOptimizer(
        embed_model=Encoded(encoder),
        percentile_cutoff=share,
        context_before=0,
        context_after=0,
        tokenizer_fn=nltk.sent_tokenize,
    )

    def optimized(query: str, documents: Sequence[HaystackDocument]) -> list[HaystackDocument]:
        given = [one for one in documents if int(len(nltk.sent_tokenize(one.content)) * share)]
        nodes = [NodeWithScore(node=TextNode(text=one.content)) for one in given]
        kept = optimizer.postprocess_nodes(nodes, QueryBundle(query))
        return [as_spans(one, node.node.text) for one, node in zip(given, kept, strict=True)]

    def as_spans(document: HaystackDocument, kept: str) -> HaystackDocument:
        """Find the sentences again, which are joined with blanks."""
        spans, position = [], 0
        sentences = sorted(nltk.sent_tokenize(document.content), key=len, reverse=True)
        while position < len(kept):
            sentence = next(one for one in sentences if kept.startswith(one, position))
            start = document.meta["split_idx_start"] + document.content.index(sentence)
            spans.append([start, start + len(sentence)])
            position += len(sentence) + 1
        return HaystackDocument(content=kept, meta={"source_id": document.meta["source_id"], "kept_spans": spans})

    return optimized
