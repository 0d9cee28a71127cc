"""
The main job, on real input and from the command line: `python benchmarks/main_job.py FOLDER`.

FOLDER holds texts (such as `chunking_evaluation/corpora`). They are indexed as sentences by `adv-retrieval index`, with
the real embedding model, in a process of its own: its time, the share of it that the model takes, its memory. Then the
warm index is asked through `pipelines/parent.yml`: the time of a query outside of the embedding model.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from haystack_adv_retrieval.cli import app
from haystack_adv_retrieval.components.leaf_embedder import LeafEmbedder
from haystack_adv_retrieval.components.query_embedder import QueryEmbedder
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.indexing.maintenance import status
from haystack_adv_retrieval.pipelines import load_pipeline, retrieve

QUERIES = 200


@contextmanager
def timed(owner: type, name: str) -> Iterator[list[float]]:
    """Collect how long the calls of a method take."""
    method: Callable[..., Any] = getattr(owner, name)
    seconds: list[float] = []

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        start = perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            seconds.append(perf_counter() - start)

    setattr(owner, name, run)
    try:
        yield seconds
    finally:
        setattr(owner, name, method)


def index(folder: str, to: str) -> None:
    """Index in this process, and print what it took."""
    start = perf_counter()
    with timed(LeafEmbedder, "run") as embedding, timed(LeafEmbedder, "warm_up") as loading:
        app(["index", folder, "--to", to], standalone_mode=False)
    seconds = perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "model": sum(embedding), "loading": max(loading), "memory": memory}))


def ask(folder: Path, index: Path) -> list[float]:
    """Ask for sentences of the texts, and take the milliseconds of each query without those of the model."""
    words = " ".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))).split()
    step = len(words) // QUERIES
    pipeline = load_pipeline("parent", index=index)
    milliseconds = []
    for start in range(0, step * QUERIES, step):
        with timed(QueryEmbedder, "run") as embedding:
            begin = perf_counter()
            retrieve(pipeline, " ".join(words[start : start + 8]))
            milliseconds.append(1000 * (perf_counter() - begin - sum(embedding)))
    return milliseconds[1:]  # the first one opens the index


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        to = Path(temporary) / "index"
        command = [sys.executable, __file__, str(folder), str(to)]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        megabytes = sum(path.stat().st_size for path in folder.glob("*.md")) / 1e6
        found = status(QdrantEdgeDocumentStore(str(to)))
        print(f"{megabytes:.2f} MB in {found.sources} texts: {found.leaves:,} leaves, {found.parents:,} parents")
        share = f"{report['model']:.0f} s ({report['model'] / report['seconds']:.1%})"
        print(f"indexed by the command line in {report['seconds']:.0f} s")
        print(f"  of which the model takes {share}, {report['loading']:.1f} s of it to load")
        print(f"peak memory, with the model: {report['memory']:.0f} MB")
        times = ask(folder, to)
        p95 = quantiles(times, n=20)[-1]
        print(f"a warm query outside of the embedding model: p50 {median(times):.1f} ms, p95 {p95:.1f} ms")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        index(*sys.argv[1:])
    else:
        main(Path(sys.argv[1]))
