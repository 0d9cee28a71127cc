"""
Summary to detail against flat search: what summaries find, what is found behind them, and what the safety net saves.

Two collections, indexed as sentences below sections and searched with both words and vectors (all-MiniLM-L6-v2):

- anthropic_docs (anthropics/anthropic-cookbook): 232 sections with summaries that a model wrote, and questions with
  their gold sections. A section is a source of its own.
- chunking_evaluation (brandonstarxel/chunking_evaluation): five long texts in sections of at most 400 words, with
  extractive summaries, and questions with gold passages. Gold are the sections that a passage lies in.

Recall is the share of a question's gold sections among the first k sections, averaged over the questions: of the
summaries found, or of the sections of the first 30 sentences found.

`pipelines/summary_to_detail.yml` routes to 3 sections, with a safety net of 0.3.

    python benchmarks/summaries.py FOLDER --output benchmarks/results/summaries.txt

FOLDER holds both collections, each in a folder of its name.
"""

import argparse
import datetime
import json
import logging
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

import corpora
from haystack import Document

from haystack_adv_retrieval import (
    HierarchicalSplitter,
    LeafEmbedder,
    QdrantEdgeDocumentStore,
    QdrantEdgeRetriever,
    QueryEmbedder,
    RoutedRetriever,
    SectionSummarizer,
    SummaryRouter,
    index_documents,
)
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.evaluation.questions import Question

TOP_K = (1, 3, 5, 8)
ROUTED = (3, 5, 8, 12)  # sections
SAFETY_NETS = (0.0, 0.2, 0.3, 0.5)
LEAVES = 30
WHOLE = 1_000_000  # words: a section is a source of its own


class ReadySummaries:
    """Takes summaries that were written before."""

    def __init__(self, by_source: Mapping[str, str]) -> None:
        self.by_source = by_source
        self.summarizer = SectionSummarizer(sentences=1)

    def run(self, parents: list[Document], documents: list[Document]) -> dict[str, Any]:
        made = self.summarizer.run(parents, documents)["summaries"]
        return {
            "summaries": [replace(summary, content=self.by_source[summary.meta[chunks.SOURCE_ID]]) for summary in made]
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data")
    parser.add_argument("--questions", type=int, default=500, help="questions of each collection, at most")
    parser.add_argument("--texts", nargs="*", help="which texts of chunking_evaluation; all if not given")
    parser.add_argument("--indexes", type=Path, help="keep the indexes in this folder, for another run")
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
    arguments = parser.parse_args()
    logging.getLogger("haystack_adv_retrieval").setLevel(logging.ERROR)
    lines = [
        f"{datetime.date.today()}",
        ", ".join(f"{name} {version(name)}" for name in ("haystack-adv-retrieval", "haystack-ai", "qdrant-edge-py")),
    ]
    with tempfile.TemporaryDirectory() as temporary:
        indexes = arguments.indexes or Path(temporary)
        for line in chain(
            anthropic_docs(arguments.folder / "anthropic_docs", indexes / "docs", arguments.questions),
            chunking_evaluation(arguments.folder, indexes / "texts", arguments.questions, arguments.texts),
        ):
            print(line, flush=True)
            lines.append(line)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def anthropic_docs(folder: Path, index: Path, limit: int) -> Iterator[str]:
    sections = json.loads((folder / "summary_indexed_docs.json").read_text("utf-8"))
    rows = json.loads((folder / "docs_evaluation_dataset.json").read_text("utf-8"))
    texts = {section["chunk_link"]: section["text"] for section in sections}
    summaries = {section["chunk_link"]: section["summary"] for section in sections}
    questions = [Question(row["question"], frozenset(texts.keys() & row["correct_chunks"])) for row in rows]
    store = indexed(texts, index, WHOLE, ReadySummaries(summaries))
    yield from tables("anthropic_docs, summaries by a model", store, questions[:limit])
    store.close()


def chunking_evaluation(folder: Path, index: Path, limit: int, names: Sequence[str] | None) -> Iterator[str]:
    corpus, questions = corpora.chunking_evaluation(folder)
    texts = {name: text for name, text in corpus.items() if not names or Path(name).stem in names}
    questions = [question for question in questions if question.sources <= texts.keys()]
    questions = random.Random(1).sample(questions, min(limit, len(questions)))
    store = indexed(texts, index, 400, SectionSummarizer())
    title = f"chunking_evaluation ({', '.join(Path(name).stem for name in texts)}), extractive summaries"
    yield from tables(title, store, questions)
    store.close()


def indexed(texts: Mapping[str, str], folder: Path, section_size: int, summarizer: Any) -> QdrantEdgeDocumentStore:
    store = QdrantEdgeDocumentStore(str(folder))
    index_documents(
        [Document(content=text, meta={"source_id": name}) for name, text in texts.items()],
        store,
        LeafEmbedder(),
        HierarchicalSplitter([section_size, 60], leaf="sentence"),
        summarizer=summarizer,
        raise_on_failure=True,
    )
    return store


def tables(title: str, store: QdrantEdgeDocumentStore, questions: Sequence[Question]) -> Iterator[str]:
    leaves, sections = (store.filter_documents(of(unit)) for unit in ("leaf", "block"))
    sizes: dict[str, int] = defaultdict(int)
    for leaf in leaves:
        sizes[leaf.meta[chunks.PARENT_ID]] += 1
    embedder = QueryEmbedder()
    summaries = QdrantEdgeRetriever(store, top_k=max(*TOP_K, *ROUTED), filters=of("summary"))
    search = QdrantEdgeRetriever(store, top_k=LEAVES, filters=of("leaf"))
    retrievers = {net: RoutedRetriever(search, safety_net=net) for net in SAFETY_NETS}
    recalls: dict[Any, list[list[float]]] = defaultdict(list)
    searched: dict[int, list[float]] = defaultdict(list)
    for question in questions:
        gold = gold_sections(question, sections)
        if not gold:
            continue
        query = {"query": question.text, "query_embedding": embedder.run(text=question.text)["embedding"]}
        hits = summaries.run(**query)["documents"]
        recalls["summaries"].append(recall(gold, hits))
        recalls["flat"].append(recall(gold, search.run(**query)["documents"]))
        for top_k in ROUTED:
            route = SummaryRouter(top_k).run(documents=hits)
            searched[top_k].append(
                sum(sizes[hit.meta[chunks.PARENT_ID]] for hit in route.pop("sections")) / len(leaves)
            )
            for net, retriever in retrievers.items():
                recalls[top_k, net].append(recall(gold, retriever.run(**route, **query)["documents"]))

    yield ""
    yield f"{title}: {len(sections)} sections, {len(leaves)} sentences, {len(recalls['flat'])} questions"
    yield f"{'recall of sections among the first':<46}{''.join(f'{k:>8}' for k in TOP_K)}{'searched':>12}"
    yield row("summaries (routing)", recalls["summaries"], len(sections) / len(leaves))
    yield row("sentences, flat search", recalls["flat"], 1.0)
    for top_k in ROUTED:
        for net in SAFETY_NETS:
            name = f"sentences, {top_k} sections, " + (f"safety net {net}" if net else "no safety net")
            yield row(name, recalls[top_k, net], fmean(searched[top_k]))


def of(unit: str) -> dict[str, Any]:
    return {"field": f"meta.{chunks.UNIT}", "operator": "==", "value": unit}


def gold_sections(question: Question, sections: Sequence[Document]) -> set[str]:
    """Find the sections that hold a gold span; where only sources are known, all of theirs."""
    found = set()
    for section in sections:
        source, span = section.meta[chunks.SOURCE_ID], chunks.span_of(section.meta)
        gold = question.spans.get(source, [span])
        if source in question.sources and any(span.overlaps(each) for each in gold):
            found.add(section.id)
    return found


def recall(gold: set[str], hits: Sequence[Document]) -> list[float]:
    """Share of the gold among the first k sections, for each k."""
    found = list(dict.fromkeys(hit.meta[chunks.PARENT_ID] for hit in hits))
    return [len(gold & set(found[:k])) / len(gold) for k in TOP_K]


def row(name: str, recalls: Sequence[Sequence[float]], searched: float) -> str:
    means = [fmean(values) for values in zip(*recalls, strict=True)]
    return f"{name:<46}{''.join(f'{mean:>8.3f}' for mean in means)}{searched:>12.1%}"


if __name__ == "__main__":
    main()
