"""Haystack's own splitters and retrievers for small-to-big retrieval."""

from collections.abc import Mapping
from dataclasses import replace

from embeddings import BruteForce, Encoder
from haystack import Document
from haystack.components.joiners import DocumentJoiner
from haystack.components.preprocessors import DocumentSplitter, HierarchicalDocumentSplitter
from haystack.components.retrievers import AutoMergingRetriever, SentenceWindowRetriever
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_adv_retrieval.evaluation.strategies import Answer, Strategy


def strategies(corpus: Mapping[str, str], encoder: Encoder) -> dict[str, Strategy]:
    return {
        "Haystack word 200 + bm25 rrf": hybrid(corpus, encoder, 200),
        "Haystack word 100": dense(corpus, encoder, 100),
        "Haystack word 100 + bm25 rrf": hybrid(corpus, encoder, 100),
        "Haystack sentence-window 1": sentence_window(corpus, encoder, 1),
        "Haystack automerge 512/128/32 k20": auto_merging(corpus, encoder, k=20, resort=False),
        "Haystack automerge 512/128/32 k20 re-sorted": auto_merging(corpus, encoder, k=20, resort=True),
    }


class IndexedStore(InMemoryDocumentStore):
    """Haystack's store in memory, with an index for the two filters that its retrievers send by the dozen."""

    def write_documents(self, documents, **_):
        self.by_id = {document.id: document for document in documents}
        self.by_split = {(d.meta.get("source_id"), d.meta.get("split_id")): d for d in documents}
        return len(documents)

    def filter_documents(self, filters=None):
        if filters.get("field") == "id":
            wanted = filters["value"] if filters["operator"] == "in" else [filters["value"]]
            return [self.by_id[one] for one in wanted if one in self.by_id]
        found = []
        for window in filters["conditions"] if filters["operator"] == "OR" else [filters]:
            conditions = {
                (part["field"].removeprefix("meta."), part["operator"]): part["value"] for part in window["conditions"]
            }
            splits = range(conditions["split_id", ">="], conditions["split_id", "<="] + 1)
            found += [self.by_split.get((conditions["source_id", "=="], number)) for number in splits]
        return list({one.id: one for one in found if one}.values())


def split(corpus: Mapping[str, str], **options: object) -> list[Document]:
    splitter = DocumentSplitter(split_overlap=0, **options)
    splitter.warm_up()
    documents = [Document(id=source, content=text) for source, text in corpus.items()]
    return splitter.run(documents=documents)["documents"]


def dense(corpus: Mapping[str, str], encoder: Encoder, words: int, k: int = 40) -> Strategy:
    chunks = split(corpus, split_by="word", split_length=words)
    index = BruteForce(encoder, [chunk.content for chunk in chunks])
    return lambda query: Answer([replace(chunks[place], score=score) for place, score in index.search(query, k)])


def hybrid(corpus: Mapping[str, str], encoder: Encoder, words: int, k: int = 40) -> Strategy:
    chunks = split(corpus, split_by="word", split_length=words)
    index = BruteForce(encoder, [chunk.content for chunk in chunks])
    store = InMemoryDocumentStore()
    store.write_documents(chunks)
    bm25 = InMemoryBM25Retriever(store, top_k=k)
    joiner = DocumentJoiner(join_mode="reciprocal_rank_fusion")

    def ask(query: str) -> Answer:
        near = [replace(chunks[place], score=score) for place, score in index.search(query, k)]
        return Answer(joiner.run(documents=[near, bm25.run(query=query)["documents"]])["documents"])

    return ask


def sentence_window(corpus: Mapping[str, str], encoder: Encoder, window: int, k: int = 40) -> Strategy:
    sentences = split(corpus, split_by="sentence", split_length=1)
    index = BruteForce(encoder, [sentence.content for sentence in sentences])
    store = IndexedStore()
    store.write_documents(sentences)
    retriever = SentenceWindowRetriever(store, window_size=window)
    # The splitter's own offsets are off in places, and windows are joined by them; so windows are measured by the place
    # where their sentences really stand.
    starts: dict[str, int] = {}
    ends = dict.fromkeys(corpus, 0)
    for sentence in sentences:
        source = sentence.meta["source_id"]
        starts[sentence.id] = corpus[source].index(sentence.content, ends[source])
        ends[source] = starts[sentence.id] + len(sentence.content)

    def ask(query: str) -> Answer:
        results = []
        for place, score in index.search(query, k):
            shown = retriever.run(retrieved_documents=[sentences[place]])["context_documents"]
            source = sentences[place].meta["source_id"]
            start, end = min(starts[one.id] for one in shown), max(starts[one.id] + len(one.content) for one in shown)
            meta = {"source_id": source, "split_idx_start": start}
            results.append(Document(content=corpus[source][start:end], meta=meta, score=score))
        return Answer(results)

    return ask


def auto_merging(corpus: Mapping[str, str], encoder: Encoder, *, k: int, resort: bool) -> Strategy:
    splitter = HierarchicalDocumentSplitter(block_sizes={512, 128, 32}, split_overlap=0, split_by="word")
    documents = [Document(id=source, content=text) for source, text in corpus.items()]
    everything = {one.id: one for one in splitter.run(documents)["documents"]}
    leaves = [one for one in everything.values() if not one.meta["__children_ids"]]
    index = BruteForce(encoder, [leaf.content for leaf in leaves])
    store = IndexedStore()
    store.write_documents(list(everything.values()))
    retriever = AutoMergingRetriever(store, threshold=0.5)
    starts: dict[str, tuple[str, int]] = {}

    def address(one: Document) -> tuple[str, int]:
        """Find the source of a block and where it starts there: its own offset is the one within its parent."""
        if one.id not in starts:
            parent = one.meta["__parent_id"]
            source, base = address(everything[parent]) if parent else (one.id, 0)
            known = next((name for name, text in corpus.items() if text == one.content), source)
            starts[one.id] = (known, 0) if not parent else (source, base + one.meta["split_idx_start"])
        return starts[one.id]

    def ask(query: str) -> Answer:
        hits = [replace(leaves[place], score=score) for place, score in index.search(query, k)]
        scores = {hit.id: hit.score for hit in hits}
        merged = retriever.run(documents=hits)["documents"]

        def best(one: Document) -> float:
            children = (everything[child] for child in one.meta["__children_ids"])
            return max([scores.get(one.id, -1.0), *map(best, children)])

        if resort:
            merged = sorted(merged, key=best, reverse=True)
        return Answer(
            [
                Document(
                    content=one.content, meta=dict(zip(("source_id", "split_idx_start"), address(one), strict=True))
                )
                for one in merged
            ]
        )

    return ask
