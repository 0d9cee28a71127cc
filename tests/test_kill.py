import multiprocessing
import os
import random

import killed_indexer
from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from index_states import check_trees, state_of

from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.indexing.maintenance import PruneReport, prune, status

KILLS = int(os.environ.get("ADV_RETRIEVAL_TEST_KILLS", "52"))
WORDS = ["refund", "parcel", "invoice", "warranty", "travel", "hotel", "laptop", "meeting", "budget", "holiday"]


def test_a_run_killed_at_any_point_leaves_whole_trees_and_the_next_run_ends_as_if_nothing_had_happened(
    memory_path, monkeypatch
):
    killed_indexer.make_batches_small(monkeypatch.setattr)
    dice = random.Random(20)
    processes = multiprocessing.get_context("forkserver")
    # What a child imports costs more than its run, so the server of the children imports it once.
    processes.set_forkserver_preload(
        [
            "pytest",
            "hypothesis.strategies",
            "haystack.components.embedders.mock_document_embedder",
            "haystack_adv_retrieval.indexing.documents",
            "haystack_adv_retrieval.document_stores.qdrant_edge_document_store",
        ]
    )
    path = str(memory_path / "index")
    corpus = {f"doc{number}": text(dice) for number in range(6)}
    model = "small"
    kills = runs = compared = 0
    while kills < KILLS:
        model = "large" if dice.random() < 0.1 else "small"
        change(corpus, dice)
        child = processes.Process(
            target=killed_indexer.run_and_die, args=(path, documents(corpus), model, dice.randrange(1 << 30))
        )
        child.start()
        child.join()
        assert child.exitcode in (0, -9)
        kills += child.exitcode == -9
        runs += 1
        store = QdrantEdgeDocumentStore(path)
        check_trees(store)
        for word in WORDS[:3]:
            hits = store.search(word, filters={"field": "meta.unit", "operator": "==", "value": "leaf"}, top_k=50)
            assert all(word in hit.content.lower() for hit in hits)
        if dice.random() < 0.3:  # as a server does before it answers
            prune(store, unfinished_only=True)
            assert not status(store).stale
            check_trees(store)
        if dice.random() < 0.5:  # otherwise the next run begins where several were killed
            killed_indexer.run(store, documents(corpus), model)
            fresh = InMemoryDocumentStore()
            killed_indexer.run(fresh, documents(corpus), model)
            assert state_of(store) == state_of(fresh)
            assert not status(store).drift
            assert prune(store) == PruneReport()
            compared += 1
        store.close()
    print(f"{runs} runs, {kills} killed; {runs} times all trees whole, {compared} times as made afresh; 0 violations")


def text(dice: random.Random) -> str:
    sentences = [
        f"{' '.join(dice.choices(WORDS, k=dice.randint(3, 7))).capitalize()}." for _ in range(dice.randint(0, 12))
    ]
    return "\n\n".join(" ".join(sentences[start : start + 3]) for start in range(0, len(sentences), 3))


def change(corpus: dict[str, str], dice: random.Random) -> None:
    """Change, add, remove and bring back some sources."""
    for _ in range(dice.randint(0, 3)):
        name = f"doc{dice.randint(0, 8)}"
        if name not in corpus or dice.random() < 0.5:
            corpus[name] = text(random.Random(f"{name} {dice.randint(0, 2)}"))
        elif dice.random() < 0.5:
            corpus[name] += " One more sentence."
        elif len(corpus) > 1:
            del corpus[name]


def documents(corpus: dict[str, str]) -> list[Document]:
    return [Document(content=content, meta={"source_id": name}) for name, content in corpus.items()]
