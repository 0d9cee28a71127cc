"""What the kill test runs in a process of its own: an indexing run that dies in the middle of it."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from haystack import Document
from haystack.components.embedders import MockDocumentEmbedder
from trees import summary_of

from haystack_adv_retrieval import stores
from haystack_adv_retrieval.components import index_diff, index_writer
from haystack_adv_retrieval.components.hierarchical_splitter import HierarchicalSplitter
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.indexing import run as index_run
from haystack_adv_retrieval.indexing.documents import IndexReport, index_documents


class SectionTitles:
    """Summaries of the coarsest blocks: their first words."""

    def run(self, parents: list[Document], documents: list[Document]) -> dict[str, list[Document]]:  # noqa: ARG002
        sections = [parent for parent in parents if parent.meta[chunks.LEVEL] == 1]
        titles = [" ".join(section.content.split()[:3]) for section in sections]
        return {"summaries": list(map(summary_of, sections, titles))}


class MortalStore(QdrantEdgeDocumentStore):
    """Kills the process with SIGKILL, from another thread, around its n-th change."""

    def __init__(self, path: str, changes: int, delay: float) -> None:
        super().__init__(path)
        self.changes = changes
        self.delay = delay

    def _one_more(self) -> None:
        self.changes -= 1
        if self.changes == 0:
            threading.Thread(target=self._die).start()

    def _die(self) -> None:
        time.sleep(self.delay)
        os.kill(os.getpid(), signal.SIGKILL)

    def write_documents(self, *args: Any, **kwargs: Any) -> int:
        self._one_more()
        return super().write_documents(*args, **kwargs)

    def delete_documents(self, *args: Any, **kwargs: Any) -> None:
        self._one_more()
        super().delete_documents(*args, **kwargs)

    def delete_by_filter(self, *args: Any, **kwargs: Any) -> int:
        self._one_more()
        return super().delete_by_filter(*args, **kwargs)


def make_batches_small(set_attribute: Callable[[Any, str, int], None] = setattr) -> None:
    """Let every phase of writing have several batches."""
    for module in (stores, index_diff, index_writer):
        set_attribute(module, "BATCH_SIZE", 5)
    set_attribute(index_run, "MAX_SOURCES", 3)


def run(store: Any, documents: list[Document], model: str) -> IndexReport:
    """Index with a cheap embedder and with summaries."""
    return index_documents(
        documents,
        store,
        MockDocumentEmbedder(dimension=4, model=model, prefix=model),
        HierarchicalSplitter([24, 8]),
        summarizer=SectionTitles(),
        reembed=True,
        delete_missing=True,
        raise_on_failure=True,
    )


def run_and_die(path: str, documents: list[Document], model: str, seed: int) -> None:
    """Index, and be killed somewhere on the way."""
    make_batches_small()
    dice = random.Random(seed)
    store = MortalStore(path, changes=dice.randint(1, 25), delay=dice.choice([0, dice.uniform(0, 0.01)]))
    run(store, documents, model)
    store.close()
