"""Trees of chunks to retrieve from, stores that count their calls, and texts for hypothesis to make trees of."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from haystack import Document, Pipeline
from haystack.document_stores.in_memory import InMemoryDocumentStore
from hypothesis import strategies as st

from haystack_adv_retrieval import HierarchicalSplitter, QdrantEdgeDocumentStore
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span


@dataclass(frozen=True)
class Tree:
    """A text, its leaves, and all its coarser chunks."""

    text: str
    leaves: list[Document]
    parents: list[Document]

    @property
    def all(self) -> list[Document]:
        return [*self.leaves, *self.parents]

    def level(self, level: int) -> list[Document]:
        return [chunk for chunk in self.all if chunk.meta[chunks.LEVEL] == level]

    def parent_of(self, chunk: Document) -> Document:
        return next(one for one in self.parents if one.id == chunk.meta[chunks.PARENT_ID])


def tree_of(text: str, source_id: str = "text", **options: Any) -> Tree:
    options = {"block_sizes": [24, 8], "leaf": "sentence"} | options
    split = HierarchicalSplitter(**options).run(documents=[Document(content=text, meta={"source_id": source_id})])
    return Tree(text, split["documents"], split["parents"])


class CountingStore:
    """A real store that notes which of its methods are called."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.store, name)
        if not callable(attribute) or name == "to_dict":
            return attribute

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            return attribute(*args, **kwargs)

        return counted


def store_of(documents: Iterable[Document]) -> CountingStore:
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(list(documents))
    return CountingStore(store)


def scored(*documents: Document) -> list[Document]:
    """Give documents falling scores, as a retriever would: 0.9, 0.8, ..."""
    return [replace(document, score=round(0.9 - 0.1 * place, 1)) for place, document in enumerate(documents)]


WORDS = st.sampled_from(
    ["Refunds", "take", "14", "days", "no", "café", "退款", "👩‍👩‍👧", "e.g.", "x" * 40, "(see", "below)"]
)
ENDS = st.sampled_from([". ", ".\n", "? ", "\n\n", ".\r\n", ".\f", "\n\n# Heading\n\n", "\n- "])
TEXTS = st.lists(st.builds("{} {}{}".format, WORDS, WORDS, ENDS), min_size=1, max_size=24).map("".join)
SCORES = st.one_of(st.none(), st.sampled_from([-0.5, 0.0, 0.25, 0.5, 0.75, 1.0]))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    sizes = draw(st.sampled_from([[8, 3], [16, 6, 3], [5]]))
    return tree_of(draw(TEXTS), block_sizes=sizes, leaf=draw(st.sampled_from(["sentence", "chunk"])))


@st.composite
def hits_of(draw: st.DrawFn, documents: list[Document]) -> list[Document]:
    """Draw hits with scores; some come more than once."""
    drawn = draw(st.lists(st.sampled_from(documents), max_size=12))
    return [replace(document, score=draw(SCORES)) for document in drawn]


def edge_store_of(documents: Iterable[Document], folder: Path) -> CountingStore:
    store = QdrantEdgeDocumentStore(str(folder / "index"))
    store.write_documents(list(documents))
    return CountingStore(store)


def summary_of(section: Document, content: str) -> Document:
    """Make the summary of a section as an index holds it: at the section's address, with the section as its parent."""
    meta = section.meta | {
        chunks.UNIT: "summary",
        chunks.PARENT_ID: section.id,
        chunks.PARENT_START: section.meta[chunks.START],
        chunks.PARENT_END: section.meta[chunks.END],
    }
    return Document(id=chunks.summary_id(section.id), content=content, meta=meta)


def through_yaml(component: Any) -> Any:
    """Write a component to YAML as a part of a pipeline, and read it back."""
    pipeline = Pipeline()
    pipeline.add_component("it", component)
    text = pipeline.dumps()
    assert "!!python" not in text
    return Pipeline.loads(text, allowed_modules=["haystack_adv_retrieval"]).get_component("it")


def spans_of(results: Iterable[Document]) -> list[Span]:
    return [Span(result.meta[chunks.START], result.meta[chunks.END]) for result in results]


def characters_of(spans: Iterable[Span]) -> set[int]:
    return {position for start, end in spans for position in range(start, end)}
