"""
What compression by the index keeps: patterns alone and compressed, at equal budgets of characters, in one run.

Chroma's chunking evaluation (https://github.com/brandonstarxel/chunking_evaluation), as in context.py. Each pattern's
results are cut at the budget as they are, and compressed to the same budget out of the first 20.

    python benchmarks/compression.py FOLDER --output benchmarks/results/compression.txt

FOLDER/chunking_evaluation holds `corpora/*.md` and `questions.csv`. The index is kept in the cache.
"""

import argparse
import csv
import datetime
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack import Document

from haystack_adv_retrieval import Compressor, LeafEmbedder, QdrantEdgeDocumentStore, QueryEmbedder
from haystack_adv_retrieval.components.auto_merger import AutoMerger
from haystack_adv_retrieval.components.parent_expander import ParentExpander
from haystack_adv_retrieval.components.qdrant_edge_retriever import QdrantEdgeRetriever
from haystack_adv_retrieval.components.sentence_window_expander import SentenceWindowExpander
from haystack_adv_retrieval.core.spans import Span, merge
from haystack_adv_retrieval.evaluation.bootstrap import compare
from haystack_adv_retrieval.evaluation.indexes import build_index
from haystack_adv_retrieval.evaluation.metrics import Scores, cut, span_scores
from haystack_adv_retrieval.evaluation.questions import Question
from haystack_adv_retrieval.evaluation.strategies import passage

BUDGETS = (500, 1000, 2000, 4000, 8000)
GIVEN = 20  # results that are compressed
LEAVES = {"field": "meta.unit", "operator": "==", "value": "leaf"}
# What the defaults were chosen from, one parameter at a time.
VARIANTS: list[dict[str, Any]] = [
    {"neighbor_weight": 0.0, "text_weight": 0.0},
    *({"neighbor_weight": weight} for weight in (0.15, 0.45, 0.6)),
    *({"text_weight": weight} for weight in (0.0, 0.2, 0.3, 0.4)),
    {"keep_antecedents": False},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data")
    parser.add_argument("--cache", type=Path, default=Path(".cache/compression"), help="where the index is kept")
    parser.add_argument("--questions", type=int, help="ask so many questions only, evenly spread")
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
    arguments = parser.parse_args()

    folder, index = arguments.folder / "chunking_evaluation", arguments.cache / "index"
    corpus = {path.name: path.read_text("utf-8") for path in sorted((folder / "corpora").glob("*.md"))}
    build_index([Document(content=text, meta={"source_id": name}) for name, text in corpus.items()], index, {})
    store = QdrantEdgeDocumentStore(str(index))
    questions = list(read_questions(folder / "questions.csv"))
    questions = questions[:: max(1, len(questions) // (arguments.questions or len(questions)))]
    asked = list(ask(store, questions))

    lines = []
    tables = chain(patterns(store, asked), variants(store, asked), speed(store, asked))
    heading = [
        f"{datetime.date.today()}, {len(questions)} questions on {sum(map(len, corpus.values())):,} characters",
        f"haystack-adv-retrieval {version('haystack-adv-retrieval')}, all-MiniLM-L6-v2",
    ]
    for line in chain(heading, tables):
        print(line, flush=True)
        lines.append(line)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


Asked = tuple[Question, list[float], dict[str, list[Document]]]


def read_questions(path: Path) -> Iterator[Question]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            spans = merge(Span(gold["start_index"], gold["end_index"]) for gold in json.loads(row["references"]))
            source = f"{row['corpus_id']}.md"
            yield Question(row["question"], frozenset({source}), {source: tuple(spans)}, group=row["corpus_id"])


def ask(store: QdrantEdgeDocumentStore, questions: Sequence[Question]) -> Iterator[Asked]:
    """Retrieve once for each question; all that is compared starts from the same hits."""
    embedder, retriever = QueryEmbedder(), QdrantEdgeRetriever(store, mode="hybrid", top_k=60, filters=LEAVES)
    expanders = {
        "parent": ParentExpander(store, top_k=60),
        "window": SentenceWindowExpander(store, top_k=60),
        "merge": AutoMerger(store, top_k=60),
    }
    for question in questions:
        vector = embedder.run(text=question.text)["embedding"]
        hits = retriever.run(query=question.text, query_embedding=vector)["documents"]
        results = {name: one.run(documents=hits)["documents"] for name, one in expanders.items()}
        yield question, vector, {"hits": hits, **results}


def scores(question: Question, documents: Sequence[Document], budget: int) -> Scores:
    return span_scores(question.spans, cut(map(passage, documents), budget))


def compressed(compressor: Compressor, asked: Asked, pattern: str, budget: int) -> Scores:
    question, vector, results = asked
    kept = compressor.run(question.text, results[pattern][:GIVEN], query_embedding=vector, max_length=budget)
    return scores(question, kept["documents"], budget)


def patterns(store: QdrantEdgeDocumentStore, asked: Sequence[Asked]) -> Iterator[str]:
    """Each pattern alone and compressed, with the difference in recall."""
    compressor = Compressor(document_store=store)
    yield "\nrecall, precision and IoU by budget; difference in recall with its 95 % interval (paired bootstrap)"
    yield "pattern   budget" + "".join(f"{name:>21}" for name in ("alone", "compressed")) + "   difference"
    for pattern in ("parent", "window", "merge"):
        for budget in BUDGETS:
            alone = [scores(question, results[pattern], budget) for question, _, results in asked]
            short = [compressed(compressor, one, pattern, budget) for one in asked]
            result = compare([one.recall for one in short], [one.recall for one in alone])
            interval = f"{result.difference:+.3f} ({result.low:+.3f} to {result.high:+.3f})"
            yield (
                f"{pattern:<9} {budget:>6}"
                + "".join(f"{means(some):>21}" for some in (alone, short))
                + f"   {interval}"
            )


def means(some: Sequence[Scores]) -> str:
    return " ".join(f"{sum(values) / len(values):.3f}" for values in zip(*some, strict=True))


def variants(store: QdrantEdgeDocumentStore, asked: Sequence[Asked]) -> Iterator[str]:
    """Recall of compressed parents with other settings."""
    yield "\nrecall of compressed parents, other settings"
    yield " " * 42 + "".join(f"R@{budget}".rjust(9) for budget in BUDGETS)
    for settings in [{}, *VARIANTS]:
        compressor = Compressor(document_store=store, **settings)
        name = ", ".join(f"{key}={value}" for key, value in settings.items()) or "defaults"
        recalls = [
            sum(compressed(compressor, one, "parent", budget).recall for one in asked) / len(asked)
            for budget in BUDGETS
        ]
        yield f"{name:<42}" + "".join(f"{recall:9.3f}" for recall in recalls)


def speed(store: QdrantEdgeDocumentStore, asked: Sequence[Asked]) -> Iterator[str]:
    """Both ways to score the same sentences, in turn; the question's vector is given to both."""
    compressors = {
        "index": Compressor("index", document_store=store, max_length=2000),
        "embedding": Compressor("embedding", document_embedder=LeafEmbedder(), max_length=2000),
    }
    wide = SentenceWindowExpander(store, window_size=25, top_k=5)
    times = defaultdict(list)
    recalls = defaultdict(list)
    words = []
    for question, vector, results in asked[:: max(1, len(asked) // 12)]:
        parents = wide.run(documents=results["hits"])["documents"]
        words += [len((parent.content or "").split()) for parent in parents]
        for name, compressor in compressors.items():
            compressor.warm_up()
            start = time.perf_counter()
            kept = compressor.run(question.text, parents, query_embedding=vector)["documents"]
            times[name].append(time.perf_counter() - start)
            recalls[name].append(scores(question, kept, 2000).recall)
    yield f"\n5 parents of {median(words):.0f} words to 2,000 characters: median time, recall"
    for name in compressors:
        yield f"{name:<10} {1000 * median(times[name]):8.1f} ms   {sum(recalls[name]) / len(recalls[name]):.3f}"
    yield f"index is {median(times['embedding']) / median(times['index']):.0f} times as fast"


if __name__ == "__main__":
    main()
