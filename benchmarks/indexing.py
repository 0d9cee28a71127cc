"""
What a change of the sources costs: `python benchmarks/indexing.py FOLDER [SMALL_FILES]`.

FOLDER holds the corpora of Chroma's chunking evaluation (`chunking_evaluation/corpora/*.md`). Each is a source, cut
into sentences, and is edited in several ways; counted is what gets embedded again, here and with LlamaIndex's
IngestionPipeline and LangChain's index(), in one run. The embedder is a hash, so the times are those of everything
else. Then come many small sources, and SMALL_FILES small files (20,000) that are indexed a second time, unchanged, with
the settings of `pipelines/indexing.yml`; that run has a process of its own, whose peak memory is taken.
"""

import hashlib
import logging
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from embeddings import use_bundled_data
from haystack import Document
from langchain_classic.indexes import SQLRecordManager
from langchain_core.documents import Document as LangChainDocument
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import index as langchain_index
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import Document as LlamaIndexDocument
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceWindowNodeParser
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore
from peers_langchain import Sentences

from haystack_adv_retrieval.components.hierarchical_splitter import HierarchicalSplitter
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.indexing import index_documents
from haystack_adv_retrieval.pipelines import load_pipeline

DIMENSION = 384
SMALL_SOURCES = 1_000
SMALL_FILES = 20_000
ADDED = " The editor added this sentence later on."


@dataclass(frozen=True)
class Source:
    text: str
    owner: str = "red"


Corpus = Mapping[str, Source]


def vector_of(text: str) -> list[float]:
    numbers = np.frombuffer(hashlib.shake_256(text.encode()).digest(2 * DIMENSION), dtype=np.uint16) / 65_535 - 0.5
    return (numbers / np.linalg.norm(numbers)).tolist()


class Ours:
    """This package, with the embedded store."""

    name = "haystack_adv_retrieval"

    class Embedder:
        model = "hash"

        def run(self, documents: list[Document]) -> dict[str, list[Document]]:
            return {"documents": [Document(**{**vars(d), "embedding": vector_of(d.content)}) for d in documents]}

    def __init__(self, folder: str) -> None:
        self.store = QdrantEdgeDocumentStore(folder)
        self.splitter = HierarchicalSplitter([400, 60], leaf="sentence")

    def index(self, corpus: Corpus) -> tuple[int, int]:
        documents = (
            Document(content=source.text, meta={"source_id": name, "owner": source.owner})
            for name, source in corpus.items()
        )
        report = index_documents(documents, self.store, self.Embedder(), self.splitter, delete_missing=True)
        assert not report.failures
        leaves = {"field": "meta.unit", "operator": "==", "value": "leaf"}
        return report.leaves_embedded, self.store.count_documents_by_filter(leaves)


class LlamaIndex:
    """LlamaIndex's IngestionPipeline with a docstore, one node a sentence."""

    name = "LlamaIndex IngestionPipeline"

    class Embedder(BaseEmbedding):
        count: int = 0

        def _get_text_embedding(self, text: str) -> list[float]:
            self.count += 1
            return vector_of(text)

        def _get_query_embedding(self, query: str) -> list[float]:
            return vector_of(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return vector_of(query)

    def __init__(self, _folder: str) -> None:
        self.embedder = self.Embedder()
        self.store = SimpleVectorStore()
        self.pipeline = IngestionPipeline(
            transformations=[SentenceWindowNodeParser.from_defaults(window_size=1), self.embedder],
            docstore=SimpleDocumentStore(),
            docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
            vector_store=self.store,
        )

    def index(self, corpus: Corpus) -> tuple[int, int]:
        before = self.embedder.count
        documents = [
            LlamaIndexDocument(id_=name, text=source.text, metadata={"owner": source.owner})
            for name, source in corpus.items()
        ]
        self.pipeline.run(documents=documents)
        return self.embedder.count - before, len(self.store.data.embedding_dict)


class LangChain:
    """LangChain's index() with a record manager, one document a sentence. It knows nothing of parents."""

    name = "LangChain index()"

    class Embedder(Embeddings):
        count = 0

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            self.count += len(texts)
            return [vector_of(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return vector_of(text)

    def __init__(self, _folder: str) -> None:
        self.embedder = self.Embedder()
        self.store = InMemoryVectorStore(self.embedder)
        self.records = SQLRecordManager("benchmark", db_url="sqlite:///:memory:")
        self.records.create_schema()

    def index(self, corpus: Corpus) -> tuple[int, int]:
        before = self.embedder.count
        documents = [
            LangChainDocument(page_content=source.text, metadata={"source": name, "owner": source.owner})
            for name, source in corpus.items()
        ]
        langchain_index(
            Sentences().split_documents(documents),
            self.records,
            self.store,
            cleanup="full",
            source_id_key="source",
            batch_size=1_000,
            key_encoder="sha256",
        )
        return self.embedder.count - before, len(self.store.store)


def inserted(text: str) -> str:
    place = text.index(". ", len(text) // 10) + 1
    return text[:place] + ADDED + text[place:]


def shortened(text: str) -> str:
    lines = text.split("\n")
    longest = max(range(len(lines) // 3, 2 * len(lines) // 3 + 1), key=lambda number: len(lines[number]))
    if len(lines) < 3:  # a text without paragraphs loses three sentences
        start = text.index(". ", len(text) // 2) + 1
        end = start
        for _ in range(3):
            end = text.index(". ", end) + 1
        return text[:start] + text[end:]
    return "\n".join(lines[:longest] + lines[longest + 1 :])


def rearranged(text: str) -> str:
    """Move five hundredths of a text, from sentence to sentence, from its second half to its first."""
    start, end, target = (text.index(". ", int(len(text) * share)) + 2 for share in (0.6, 0.65, 0.2))
    return text[:target] + text[start:end] + text[target:start] + text[end:]


EDITS: dict[str, Callable[[Source], Source]] = {
    "one sentence inserted at 10 % of each source": lambda source: Source(inserted(source.text)),
    "a paragraph deleted from each source": lambda source: Source(shortened(source.text)),
    "a section moved in each source": lambda source: Source(rearranged(source.text)),
    "one metadata value changed": lambda source: Source(source.text, owner="blue"),
    "nothing changed": lambda source: source,
}


def compare_edits(corpus: Corpus) -> None:
    size = sum(len(source.text) for source in corpus.values())
    print(f"{len(corpus)} sources of {size:,} characters as sentences\n")
    print(f"{'':46}{'system':30}{'sentences':>10}{'embedded':>10}{'reused':>9}{'seconds':>9}")
    for edit, change in {"indexed for the first time": None, **EDITS}.items():
        for system in (Ours, LlamaIndex, LangChain):
            with tempfile.TemporaryDirectory() as folder:
                index = system(folder)
                if change:
                    index.index(corpus)
                edited = {name: change(source) for name, source in corpus.items()} if change else corpus
                start = perf_counter()
                embedded, total = index.index(edited)
                seconds = perf_counter() - start
            reused = 1 - embedded / total
            print(f"{edit:46}{index.name:30}{total:>10,}{embedded:>10,}{reused:>9.2%}{seconds:>9.2f}", flush=True)


def compare_reruns() -> None:
    corpus = {f"note {number}": Source(small_text(number)) for number in range(SMALL_SOURCES)}
    print(f"\n{SMALL_SOURCES:,} small sources indexed again, unchanged\n")
    print(f"{'system':30}{'embedded':>10}{'seconds per 1,000 sources':>28}")
    for system in (Ours, LlamaIndex, LangChain):
        with tempfile.TemporaryDirectory() as folder:
            index = system(folder)
            index.index(corpus)
            start = perf_counter()
            embedded, _ = index.index(corpus)
            seconds = (perf_counter() - start) * 1_000 / SMALL_SOURCES
        print(f"{index.name:30}{embedded:>10,}{seconds:>28.3f}", flush=True)


def small_text(number: int) -> str:
    return (
        f"# Note {number}\n\nThis is small note {number}. It says that item {number * 7} is in room {number % 99}.\n\n"
        f"A second paragraph follows here. It has little to add on {number}.\n"
    )


def rerun_files(count: int) -> None:
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, processes.Pool(1, maxtasksperchild=1) as pool:
        for number in range(count):
            path = Path(folder, "files", str(number % 100), f"{number}.md")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(small_text(number))
        print(f"\n{count:,} small files, settings of pipelines/indexing.yml, each run in a process of its own\n")
        print(f"{'':32}{'added':>8}{'unchanged':>11}{'embedded':>10}{'seconds':>9}{'peak MB':>9}{'  (before: MB)'}")
        for title, real in (("first run, embeddings by a hash", False), ("second run", True)):
            row = pool.apply(run_on_files, (folder, real))
            print("{:32}{:>8,}{:>11,}{:>10,}{:>9.1f}{:>9,.0f}{:>14,.0f}".format(title, *row), flush=True)


def run_on_files(folder: str, real_model: bool) -> tuple[int, int, int, float, float, float]:
    part = load_pipeline("indexing", index=Path(folder, "index")).get_component
    embedder = part("embedder")

    class Hash(Ours.Embedder):
        model = embedder.model
        meta_fields_to_embed = embedder.meta_fields_to_embed
        embedding_separator = embedder.embedding_separator
        prefix = embedder.prefix

    def documents() -> Iterator[Document]:
        for path in sorted(Path(folder, "files").rglob("*.md")):
            yield from part("reader").run(sources=[path])["documents"]

    before = megabytes()
    start = perf_counter()
    chosen = embedder if real_model else Hash()
    report = index_documents(documents(), part("writer").document_store, chosen, part("splitter"))
    seconds = perf_counter() - start
    return report.added, report.skipped, report.leaves_embedded, seconds, megabytes(), before


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    use_bundled_data()
    logging.disable(logging.WARNING)
    paths = sorted(Path(sys.argv[1], "chunking_evaluation", "corpora").glob("*.md"))
    compare_edits({path.name: Source(path.read_text(encoding="utf-8")) for path in paths})
    compare_reruns()
    rerun_files(int(sys.argv[2]) if len(sys.argv) > 2 else SMALL_FILES)


if __name__ == "__main__":
    main()
