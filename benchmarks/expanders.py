"""
From 50 hits to context: our three small-to-large patterns beside Haystack's two, over the same chunks and hits.

The texts are made up, the vectors random; what is compared is reading and joining, not searching. Haystack's retrievers
run the way their documentation shows, on the store in memory (leaves alone for windows, blocks alone for merging), and
for comparison on the embedded engine, which is ours. Calls are counted at the store. Times are medians; on a machine
with other work, processor time (of all threads) says more than what the clock shows.

    python benchmarks/expanders.py --output benchmarks/results/expanders.txt
"""

import argparse
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

import numpy as np
from haystack import Document
from haystack.components.retrievers import AutoMergingRetriever, SentenceWindowRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_adv_retrieval import (
    AutoMerger,
    HierarchicalSplitter,
    ParentExpander,
    QdrantEdgeDocumentStore,
    SentenceWindowExpander,
)
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span, merge

SIZES = (20_000, 200_000)  # leaves
LEAVES_A_SOURCE = 250
BLOCK_SIZES = [400, 80, 20]  # words
DIMENSION = 384
HITS = 50
WINDOW = 1
THRESHOLD = 0.5
REPEATS = 25
WORDS = ["refund", "order", "parcel", "account", "member", "device", "battery", "invoice", "manual", "sensor"]


COUNTERPARTS = {
    "Haystack SentenceWindowRetriever": ["SentenceWindowExpander"],
    "Haystack AutoMergingRetriever": ["AutoMerger", "ParentExpander"],
}

Passage = tuple[str, Span, float | None, float]  # source, span, score, score of the best hit that it is there for


class CountingStore:
    """A store that counts its calls."""

    def __init__(self, store: Any) -> None:
        self.store, self.calls = store, 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return method(*args, **kwargs)

        return counted


@dataclass
class Contestant:
    """A component on a store, and what came out of it."""

    name: str
    where: str
    store: CountingStore
    ask: Callable[[], Any]
    read: Callable[[Any, Sequence[Document]], list[Passage]]
    repeats: int
    calls: int = 0
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)

    def run(self, hits: Sequence[Document]) -> None:
        self.store.calls = 0
        wall, processor = time.perf_counter(), time.process_time()
        answer = self.ask()
        self.wall.append(time.perf_counter() - wall)
        self.processor.append(time.process_time() - processor)
        self.calls, self.passages = self.store.calls, self.read(answer, hits)


def sources(leaves: int) -> Iterator[dict[str, list[Document]]]:
    """Make the chunks of one source after the other, in all about so many leaves."""
    splitter = HierarchicalSplitter(BLOCK_SIZES, leaf="sentence")
    for number in range(leaves // LEAVES_A_SOURCE):
        chance = random.Random(number)
        text = ""
        for _ in range(LEAVES_A_SOURCE):
            words = chance.choices(WORDS, k=chance.randint(6, 14))
            text += " ".join(words).capitalize() + (".\n\n" if chance.random() < 0.2 else ". ")
        yield splitter.run(documents=[Document(content=text, meta={"source_id": f"source {number}"})])


def draw_hits(leaves: Sequence[Document]) -> list[Document]:
    """Draw hits as a search gives them: some sections are hit several times, others once."""
    chance = random.Random(7)
    places: dict[int, None] = {}
    while len(places) < HITS:
        start = chance.randrange(len(leaves) - 10)
        places |= dict.fromkeys(chance.sample(range(start, start + 10), chance.choice([1, 1, 2, 4, 7])))
    drawn = chance.sample(list(places)[:HITS], HITS)
    return [replace(leaves[place], score=1 - rank / 100) for rank, place in enumerate(drawn)]


def in_haystacks_words(leaves: Sequence[Document], parents: Sequence[Document]) -> dict[str, Document]:
    """Describe chunks as Haystack's HierarchicalDocumentSplitter does, by their ids."""
    children: dict[str, list[str]] = defaultdict(list)
    for chunk in (*parents, *leaves):
        if chunks.PARENT_ID in chunk.meta:
            children[chunk.meta[chunks.PARENT_ID]].append(chunk.id)
    described = {}
    for chunk in (*parents, *leaves):
        level = chunk.meta[chunks.LEVEL]
        meta = {"__level": level - 1, "__parent_id": chunk.meta.get(chunks.PARENT_ID)}
        meta |= {"__block_size": BLOCK_SIZES[level - 1], "__children_ids": children[chunk.id]}
        described[chunk.id] = replace(chunk, meta=chunk.meta | meta)
    return described


def span_of(document: Document) -> Span:
    return Span(document.meta[chunks.START], document.meta[chunks.END])


def passages_of(documents: Sequence[Document], hits: Sequence[Document]) -> list[Passage]:
    passages: list[Passage] = []
    for document in documents:
        source, span = document.meta[chunks.SOURCE_ID], span_of(document)
        inside = (hit for hit in hits if hit.meta[chunks.SOURCE_ID] == source and span.contains(span_of(hit)))
        passages.append((source, span, document.score, max(hit.score for hit in inside)))
    return passages


def passages_of_windows(answer: dict[str, Any], hits: Sequence[Document]) -> list[Passage]:
    """Take Haystack's windows, one a hit, apart again."""
    remaining = iter(answer["context_documents"])
    passages: list[Passage] = []
    for hit, text in zip(hits, answer["context_windows"], strict=True):
        first = next(remaining)
        start, end = span_of(first)
        while end - start < len(text):
            end = span_of(next(remaining)).end
        passages.append((hit.meta[chunks.SOURCE_ID], Span(start, end), first.score, hit.score))
    return passages


def ours(hits: list[Document], store: CountingStore) -> Iterator[Contestant]:
    components = {
        "ParentExpander": ParentExpander(store),
        "ParentExpander level=1": ParentExpander(store, level=1),
        "SentenceWindowExpander": SentenceWindowExpander(store, WINDOW),
        "SentenceWindowExpander unit=sentence": SentenceWindowExpander(store, WINDOW, unit="sentence"),
        "AutoMerger": AutoMerger(store, THRESHOLD),
    }
    for name, one in components.items():
        ask = lambda run=one.run: run(documents=hits)["documents"]  # noqa: E731
        yield Contestant(name, "embedded", store, ask, passages_of, REPEATS)


def haystacks(
    hits: list[Document], leaves: list[Document], parents: list[Document], folder: Path
) -> Iterator[Contestant]:
    described = in_haystacks_words(leaves, parents)
    their_hits = [replace(described[hit.id], score=hit.score) for hit in hits]
    blocks = [described[parent.id] for parent in parents]
    for name, where, documents, repeats in (
        ("SentenceWindowRetriever", "in memory, leaves alone", leaves, 3),
        ("SentenceWindowRetriever", "embedded, leaves alone", leaves, 9),
        ("AutoMergingRetriever", "in memory, blocks alone", blocks, 9),
        ("AutoMergingRetriever", "in memory, all levels", list(described.values()), 3),
        ("AutoMergingRetriever", "embedded, all levels", list(described.values()), 9),
    ):
        memory = InMemoryDocumentStore(shared=False)
        store = memory if where.startswith("in memory") else QdrantEdgeDocumentStore(str(folder / f"{name} {where}"))
        store.write_documents(documents)
        counting = CountingStore(store)
        read: Callable[[Any, Sequence[Document]], list[Passage]] = passages_of
        if name == "SentenceWindowRetriever":
            windows = SentenceWindowRetriever(counting, window_size=WINDOW)
            ask = lambda run=windows.run: run(retrieved_documents=hits)  # noqa: E731
            read = passages_of_windows
        else:
            merging = AutoMergingRetriever(counting, threshold=THRESHOLD - 1e-9)  # it merges above, not at, a threshold
            ask = lambda run=merging.run: run(documents=their_hits)["documents"]  # noqa: E731
        yield Contestant(f"Haystack {name}", where, counting, ask, read, repeats)


def in_order(passages: Sequence[Passage]) -> float:
    """Say which share of the pairs of passages is in the order of their best hits."""
    pairs = [(one, other) for one, other in combinations([best for *_, best in passages], 2) if one != other]
    return sum(one > other for one, other in pairs) / len(pairs)


def row(contestant: Contestant) -> str:
    passages = contestant.passages
    by_source: dict[str, list[Span]] = defaultdict(list)
    for source, span, *_ in passages:
        by_source[source].append(span)
    handed_over = sum(span.length for _, span, *_ in passages)
    distinct = sum(span.length for spans in by_source.values() for span in merge(spans))
    scored = sum(score is not None for _, _, score, _ in passages) / len(passages)
    return (
        f"{contestant.name:46} {contestant.where:24} {contestant.calls:5} "
        f"{median(contestant.wall) * 1000:9.1f} {median(contestant.processor) * 1000:9.1f} "
        f"{len(passages):8} {handed_over:7} {distinct:9} {handed_over / distinct:6.2f} {scored:7.0%} "
        f"{in_order(passages):9.0%}"
    )


HEADER = (
    f"{'':46} {'store':24} calls {'wall ms':>9} {'CPU ms':>9} passages {'chars':>7} {'distinct':>9} {'ratio':>6} "
    f"{'scored':>7} {'in order':>9}"
)


def fill(leaves: int, store: QdrantEdgeDocumentStore) -> tuple[list[Document], list[Document]]:
    """Write so many leaves with vectors, and their blocks; return both without vectors."""
    numbers = np.random.default_rng(0)
    all_leaves: list[Document] = []
    all_parents: list[Document] = []
    for split in sources(leaves):
        vectors = numbers.normal(size=(len(split["documents"]), DIMENSION)).astype(np.float32).tolist()
        embedded = [replace(leaf, embedding=vector) for leaf, vector in zip(split["documents"], vectors, strict=True)]
        store.write_documents([*split["parents"], *embedded])
        all_leaves += split["documents"]
        all_parents += split["parents"]
    return all_leaves, all_parents


def report(folder: Path) -> Iterator[str]:
    versions = ", ".join(f"{name} {version(name)}" for name in ("haystack-ai", "qdrant-edge-py"))
    yield f"{HITS} hits, window {WINDOW}, threshold {THRESHOLD}; {versions}"
    groups: list[tuple[str, list[Document], list[Contestant]]] = []
    for size in SIZES:
        store = QdrantEdgeDocumentStore(str(folder / str(size)), similarity="dot_product")
        leaves, parents = fill(size, store)
        hits = draw_hits(leaves)
        contestants = [*ours(hits, CountingStore(store))]
        if size == SIZES[0]:
            contestants += haystacks(hits, leaves, parents, folder)
        groups.append((f"{len(leaves):,} leaves, {len(parents):,} blocks", hits, contestants))
    for turn in range(REPEATS):  # all take turns, so that what else the machine does hits all alike
        for _, hits, contestants in groups:
            for contestant in contestants:
                if turn < contestant.repeats:
                    contestant.run(hits)
    for title, _, contestants in groups:
        yield f"\n{title}\n{HEADER}"
        yield from map(row, contestants)
    (_, _, few), (_, _, many) = groups
    yield f"\nProcessor time at {SIZES[1]:,} leaves over time at {SIZES[0]:,}, embedded"
    for one, other in zip(few, many, strict=False):
        yield f"{one.name:71} {median(other.processor) / median(one.processor):5.2f}"
    yield f"\nProcessor time over that of ours, at {SIZES[0]:,} leaves"
    by_name = {contestant.name: contestant for contestant in few}
    for contestant in few:
        for counterpart in COUNTERPARTS.get(contestant.name, ()):
            ratio = median(contestant.processor) / median(by_name[counterpart].processor)
            yield f"{contestant.name:46} {contestant.where:24} {ratio:5.0f} x {counterpart}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="A file to write the report to, too.")
    output = parser.parse_args().output
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for line in report(Path(folder)):
            print(line, flush=True)
            lines.append(line)
    if output:
        output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
