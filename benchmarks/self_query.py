"""
Does a filter made from the question help or hurt? Rules, a chat model, and both, on labelled questions.

    python benchmarks/self_query.py tests/data/self_query
    python benchmarks/self_query.py tests/data/self_query --base-url http://127.0.0.1:8080/v1 --every 3 \\
        --replies benchmarks/results/self_query.replies.jsonl > benchmarks/results/self_query.txt

The folder holds invented collections (`*.fields.jsonl`, `*.documents.jsonl`) and `questions.jsonl`: questions with the
filter that is right, others that are right too, and a topic. A document is relevant if it satisfies the filter and is
about the topic. With `--base-url`, a server with OpenAI's protocol is asked; its replies are kept in the file
`--replies` and not asked for again, so an interrupted run goes on where it stopped.
"""

import argparse
import hashlib
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

from haystack import Document
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret
from haystack.utils.filters import document_matches_filter

from haystack_adv_retrieval.components.filtered_retriever import FilteredRetriever
from haystack_adv_retrieval.components.leaf_embedder import LeafEmbedder
from haystack_adv_retrieval.components.query_embedder import QueryEmbedder
from haystack_adv_retrieval.components.self_query_filter_builder import SelfQueryFilterBuilder
from haystack_adv_retrieval.core.filter_schema import FilterSchema
from haystack_adv_retrieval.core.self_query.filter_repair import repair
from haystack_adv_retrieval.core.self_query.filter_tree import emit, read_filter
from haystack_adv_retrieval.llm.chat_model import cut_off

TODAY = date(2031, 5, 14)
CONTENTS = {
    "reports": "documents of a company that builds harbour ferries",
    "recipes": "recipes, dishes and food",
    "gear": "products and gear of an outdoor shop",
    "tickets": "support tickets",
}
TOP_K = 10
LEGEND = """\
{count} questions. right: the filter selects the same as a gold filter, among the documents and 1,500 made-up records.
kept: share of the relevant documents that satisfy the filter. cut: share of all documents that do not. lost: questions
of which a relevant document was cut. Recall of the relevant documents in the top {top_k} of a search by embedding:
plain (the question, no filter), filtered, relaxed (where the filter leaves fewer than {top_k}), whole (relaxed, but the
whole question is searched for). worse: questions with a lower recall than plain. calls: questions about which the model
was asked. ms: median time to make the filter. The rules were written with the questions of the split tuning at hand,
and what is checked of a model's conditions with all its replies; the collection of the split fresh came last.
"""
COLUMNS = {"right": 6, "kept": 6, "cut": 6, "k x c": 5, "lost": 4, "plain": 5, "filtered": 8, "relaxed": 7}
COLUMNS |= {"whole": 5, "worse": 5, "whole worse": 11, "calls": 6, "ms": 8}


@dataclass(frozen=True)
class Collection:
    """Documents with their fields, a store that holds them, and made-up metadata to tell filters apart."""

    schema: FilterSchema
    documents: list[Document]
    store: InMemoryDocumentStore
    probes: list[Document]


@dataclass(frozen=True)
class Answer:
    """What one way to make filters did with one question."""

    split: str
    right: bool
    explained: bool
    kept: float
    cut: float
    seconds: float
    recall: dict[str, float]
    called: bool


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def selected(filters: dict[str, Any], documents: list[Document]) -> frozenset[str]:
    return frozenset(doc.id for doc in documents if not filters or document_matches_filter(filters, doc))


def probes(documents: list[Document], count: int = 1500, seed: int = 5) -> list[Document]:
    """Mix the metadata of the documents, with values next to those that occur."""
    chance = random.Random(seed)

    def near(value: Any) -> Any:
        step = chance.choice([-1, 0, 0, 0, 1])
        if value is None or isinstance(value, bool) or not step:
            return value
        if isinstance(value, int | float):
            return value + step
        try:
            return (date.fromisoformat(value) + timedelta(step * chance.choice([1, 30, 365]))).isoformat()
        except ValueError:
            return value

    names = {name for document in documents for name in document.meta}
    mixed = [{name: near(chance.choice(documents).meta.get(name)) for name in names} for _ in range(count)]
    return [Document(id=str(number), meta=meta) for number, meta in enumerate(mixed)]


def load(folder: Path, name: str, embedder: LeafEmbedder) -> Collection:
    rows = read_lines(folder / f"{name}.documents.jsonl")
    documents = [
        Document(id=row["id"], content=row["content"], meta=row["meta"] | {"topic": row["topic"]}) for row in rows
    ]
    store = InMemoryDocumentStore(embedding_similarity_function="cosine", shared=False)
    store.write_documents(embedder.run(documents=documents)["documents"])
    bare = [Document(id=row["id"], meta=row["meta"]) for row in rows]
    return Collection(FilterSchema(read_lines(folder / f"{name}.fields.jsonl")), documents, store, probes(bare))


def portable(filters: dict[str, Any] | None, schema: FilterSchema) -> dict[str, Any]:
    tree, notes = repair(read_filter(filters), schema, TODAY)
    assert not [note for note in notes if note.kind == "dropped"], notes
    return emit(tree)


class Replies:
    """What a chat model said, kept in a file: it is not asked the same twice, whatever becomes of the run."""

    def __init__(self, model: OpenAIChatGenerator, path: Path) -> None:
        self.ask, self.path = model.run, path
        self.known = {row["prompt"]: row for row in (read_lines(path) if path.exists() else [])}
        self.seconds = 0.0  # that replies from the file once took
        model.run = self.run  # type: ignore[method-assign]

    def run(self, messages: list[ChatMessage], **options: Any) -> dict[str, Any]:
        key = hashlib.sha256("\0".join(message.text or "" for message in messages).encode()).hexdigest()
        if key in self.known:
            self.seconds += self.known[key]["seconds"]
            return {"replies": [ChatMessage.from_assistant(self.known[key]["reply"])]}
        started = time.perf_counter()
        try:
            result = self.ask(messages=messages, **options)
        except Exception as error:
            result = cut_off(error)  # a reply that reached the limit of tokens
            if not result:
                raise
        seconds = round(time.perf_counter() - started, 1)
        self.known[key] = {"prompt": key, "reply": result["replies"][0].text, "seconds": seconds}
        with self.path.open("a", encoding="utf-8") as file:
            print(json.dumps(self.known[key], ensure_ascii=False), file=file)
        return result


class Searcher:
    """Searches by embedding, each text embedded once."""

    def __init__(self) -> None:
        self.embedder = QueryEmbedder()
        self.embedder.warm_up()
        self.known: dict[str, list[float]] = {}

    def search(self, store: InMemoryDocumentStore, text: str, *ladder: dict[str, Any]) -> set[str]:
        if text not in self.known:
            self.known[text] = self.embedder.run(text=text)["embedding"]
        retriever = FilteredRetriever(InMemoryEmbeddingRetriever(store, top_k=TOP_K), min_results=TOP_K)
        found = retriever.run(query_embedding=self.known[text], filters=ladder[0], relaxations=list(ladder[1:]))
        return {document.id for document in found["documents"]}


def ask(
    question: dict[str, Any],
    collection: Collection,
    builder: SelfQueryFilterBuilder,
    searcher: Searcher,
    replies: Replies | None,
) -> Answer:
    started = time.perf_counter() + (replies.seconds if replies else 0.0)
    built = builder.run(query=question["question"])
    seconds = time.perf_counter() + (replies.seconds if replies else 0.0) - started
    right = [portable(filters, collection.schema) for filters in [question["filter"], *question.get("also_right", [])]]
    everything = [*collection.documents, *collection.probes]
    about = {d.id for d in collection.documents if question["topic"] in (None, d.meta["topic"])}
    readings = [selected(filters, collection.documents) & about for filters in right]
    relevant = frozenset.intersection(*readings) or readings[0]
    left = selected(built["filters"], collection.documents)
    found = {
        "plain": searcher.search(collection.store, question["question"], {}),
        "filtered": searcher.search(collection.store, built["query"], built["filters"]),
        "relaxed": searcher.search(collection.store, built["query"], built["filters"], *built["relaxations"]),
        "whole": searcher.search(collection.store, question["question"], built["filters"], *built["relaxations"]),
    }
    return Answer(
        split=question["split"],
        right=selected(built["filters"], everything) in [selected(filters, everything) for filters in right],
        explained=not built["report"]["unexplained"],
        kept=len(left & relevant) / len(relevant),
        cut=1 - len(left) / len(collection.documents),
        seconds=seconds,
        recall={way: len(hits & relevant) / min(TOP_K, len(relevant)) for way, hits in found.items()},
        called="llm" in built["report"]["method"] or bool(built["report"]["failure"]),
    )


def rows(name: str, answers: list[Answer]) -> Iterator[str]:
    for split in ("tuning", "held out", "fresh", "all"):
        some = [answer for answer in answers if split in (answer.split, "all")]
        if some:
            figures = [
                f"{fmean(answer.right for answer in some):.1%}",
                f"{fmean(answer.kept for answer in some):.1%}",
                f"{fmean(answer.cut for answer in some):.1%}",
                f"{fmean(answer.kept * answer.cut for answer in some):.3f}",
                f"{sum(answer.kept < 1 for answer in some)}",
                *(
                    f"{fmean(answer.recall[way] for answer in some):.3f}"
                    for way in ("plain", "filtered", "relaxed", "whole")
                ),
                *(f"{sum(a.recall[way] < a.recall['plain'] for a in some)}" for way in ("relaxed", "whole")),
                f"{fmean(answer.called for answer in some):.1%}",
                f"{1000 * median(answer.seconds for answer in some):.1f}",
            ]
            cells = (f"{figure:>{width}}" for figure, width in zip(figures, COLUMNS.values(), strict=True))
            yield f"| {name:14} | {split:8} | {len(some):3d} | {' | '.join(cells)} |"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--base-url", help="of a chat server with OpenAI's protocol")
    arguments.add_argument("--model", default="local")
    arguments.add_argument("--every", type=int, default=1, help="of the way llm: answer every n-th question only")
    arguments.add_argument("--replies", type=Path, default=Path("replies.jsonl"), help="where its replies are kept")
    given = arguments.parse_args()
    questions = read_lines(given.folder / "questions.jsonl")
    embedder, searcher = LeafEmbedder(), Searcher()
    embedder.warm_up()
    collections = {name: load(given.folder, name, embedder) for name in CONTENTS}
    ways: dict[str, dict[str, Any]] = {"rules": {}}
    replies = None
    if given.base_url:
        model = OpenAIChatGenerator(
            Secret.from_token("none"),
            given.model,
            api_base_url=given.base_url,
            generation_kwargs={"temperature": 0.0, "max_tokens": 250},
            timeout=900.0,
            max_retries=0,
        )
        replies = Replies(model, given.replies)
        ways |= {name: {"chat_generator": model, "timeout": 1800.0} for name in ("auto", "llm")}
    packages = ("haystack-adv-retrieval", "haystack-ai")
    print(f"{date.today()}\n{', '.join(f'{name} {version(name)}' for name in packages)}\n")
    print(LEGEND.format(count=len(questions), top_k=TOP_K))
    if given.base_url:
        print(f"Model of auto and llm: {given.model}. The way llm is asked one question in {given.every}.\n")
    header = (
        f"| {'':14} | {'split':8} | {'n':>3} | {' | '.join(f'{title:>{width}}' for title, width in COLUMNS.items())} |"
    )
    print(header, "|".join("-" * len(cell) for cell in header.split("|")), sep="\n")
    for name, parameters in ways.items():
        builders = {
            collection: SelfQueryFilterBuilder(
                loaded.schema.fields,
                document_contents=CONTENTS[collection],
                clock=lambda: TODAY,
                method=name,
                **parameters,
            )
            for collection, loaded in collections.items()
        }
        answers = [
            ask(question, collections[question["schema"]], builders[question["schema"]], searcher, replies)
            for question in questions[:: given.every if name == "llm" else 1]
        ]
        print("\n".join(rows(name, answers)), flush=True)
        explained = [answer for answer in answers if answer.explained]
        if name == "rules":
            print(f"rules explain {len(explained)} questions whole, {sum(a.right for a in explained)} of them right")


if __name__ == "__main__":
    main()
