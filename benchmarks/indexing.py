"""
What a change of the sources costs: `python benchmarks/indexing.py FOLDER [SMALL_FILES]`.

FOLDER holds the corpora of Chroma's chunking evaluation (`chunking_evaluation/corpora/*.md`). Each is a source, cut
into sentences, and is edited in several ways; counted is what gets embedded again, here and with LlamaIndex's
IngestionPipeline and LangChain's index(), in one run. The embedder is a hash, so the times are those of everything
else; only ours writes to disk. Then come many small sources, and SMALL_FILES small files (20,000) that are indexed a
second time, unchanged, with the settings of `pipelines/indexing.yml`. Each of the two runs has a process of its own,
whose memory is taken: what it allocates, and the index's files, which the engine maps and the system may drop again.
"""

import hashlib
import logging
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

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
from haystack_adv_retrieval.indexing.documents import index_documents
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

    def __init__(self) -> None:
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

    def __init__(self) -> None:
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
    "indexed for the first time": lambda source: source,
    "one sentence inserted at 10 % of each source": lambda source: Source(inserted(source.text)),
    "a paragraph deleted from each source": lambda source: Source(shortened(source.text)),
    "a section moved in each source": lambda source: Source(rearranged(source.text)),
    "one metadata value changed": lambda source: Source(source.text, owner="blue"),
    "nothing changed": lambda source: source,
}


def compare_edits(corpus: Corpus) -> None:
    size = sum(len(source.text) for source in corpus.values())
    print(f"{len(corpus)} sources of {size:,} characters as sentences, edited again and again\n")
    print(f"{'':46}{'system':30}{'sentences':>10}{'embedded':>10}{'reused':>9}{'CPU s':>8}")
    with tempfile.TemporaryDirectory() as folder:
        systems = [Ours(folder), LlamaIndex(), LangChain()]
        for edit, change in EDITS.items():
            corpus = {name: change(source) for name, source in corpus.items()}
            for system in systems:
                start = process_time()
                embedded, total = system.index(corpus)
                seconds = process_time() - start
                reused = 1 - embedded / total
                print(f"{edit:46}{system.name:30}{total:>10,}{embedded:>10,}{reused:>9.2%}{seconds:>8.2f}", flush=True)


def compare_reruns() -> None:
    corpus = {f"note {number}": Source(small_text(number)) for number in range(SMALL_SOURCES)}
    print(f"\n{SMALL_SOURCES:,} small sources indexed again, unchanged\n")
    print(f"{'system':30}{'embedded':>10}{'CPU s per 1,000 sources':>28}")
    with tempfile.TemporaryDirectory() as folder:
        for system in (Ours(folder), LlamaIndex(), LangChain()):
            system.index(corpus)
            start = process_time()
            embedded, _ = system.index(corpus)
            seconds = (process_time() - start) * 1_000 / SMALL_SOURCES
            print(f"{system.name:30}{embedded:>10,}{seconds:>28.3f}", flush=True)


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
        print(f"{'':32}{'added':>8}{'unchanged':>11}{'embedded':>10}{'CPU s':>8}{'seconds':>9}", end="")
        print(f"{'MB at start':>13}{'at peak':>9}{'+ mapped':>10}")
        for title, real in (("first run, embeddings by a hash", False), ("second run", True)):
            row = pool.apply(run_on_files, (folder, real))
            print("{:32}{:>8,}{:>11,}{:>10,}{:>8.1f}{:>9.1f}{:>13,.0f}{:>9,.0f}{:>10,.0f}".format(title, *row))


def run_on_files(folder: str, real_model: bool) -> tuple[float, ...]:
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

    own = [megabytes("RssAnon")]
    start, busy = perf_counter(), process_time()
    report = index_documents(
        documents(),
        part("writer").document_store,
        embedder if real_model else Hash(),
        part("splitter"),
        progress=lambda _report: own.append(megabytes("RssAnon")),
    )
    times = process_time() - busy, perf_counter() - start
    return report.added, report.skipped, report.leaves_embedded, *times, own[0], max(own), megabytes("RssFile")


def megabytes(kind: str) -> float:
    """Read how much memory this process has: its own ("RssAnon"), or files that are mapped into it ("RssFile")."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024


def main() -> None:
    use_bundled_data()
    logging.disable(logging.WARNING)
    paths = sorted(Path(sys.argv[1], "chunking_evaluation", "corpora").glob("*.md"))
    compare_edits({path.name: Source(path.read_text(encoding="utf-8")) for path in paths})
    compare_reruns()
    rerun_files(int(sys.argv[2]) if len(sys.argv) > 2 else SMALL_FILES)


if __name__ == "__main__":
    main()
