"""
What compression keeps: patterns alone and compressed, beside other libraries on the same parents, in one run.

Chroma's chunking evaluation (https://github.com/brandonstarxel/chunking_evaluation), as in context.py. The results of
each pattern are cut at the budget as they are, and compressed to the same budget: in whole sentences and, "to fit",
with the last one cut. The packer chooses from the same hits with the same budget. LangChain's EmbeddingsFilter and
LlamaIndex's SentenceEmbeddingOptimizer get the same parents; the strategies of these libraries that context.py finds
best get the same texts. The settings were chosen on two of the three labelled texts and confirmed on the third, and
those about headings on documentation pages, as in packing.py.

    pip install -e ".[offline,files]" -r benchmarks/requirements.txt
    python benchmarks/compression.py FOLDER --output benchmarks/results/compression.txt

FOLDER holds `chunking_evaluation` and `anthropic_docs`. Embeddings and the indexes are kept in the cache.
With `--chat URL` a chat model behind that address compresses parents of the example handbook, too.
"""

import argparse
import datetime
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

import peers_langchain
import peers_llamaindex
from corpora import chunking_evaluation
from embeddings import Encoder, use_bundled_data
from haystack import Document, component
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.utils import Secret
from packing import CHOSEN_ON, CONFIRMED_ON, documentation

from haystack_adv_retrieval import (
    Compressor,
    ContextPacker,
    FileReader,
    LeafEmbedder,
    QdrantEdgeDocumentStore,
    QueryEmbedder,
)
from haystack_adv_retrieval.components.auto_merger import AutoMerger
from haystack_adv_retrieval.components.parent_expander import ParentExpander
from haystack_adv_retrieval.components.qdrant_edge_retriever import QdrantEdgeRetriever
from haystack_adv_retrieval.components.sentence_window_expander import SentenceWindowExpander
from haystack_adv_retrieval.core.chunks import span_of
from haystack_adv_retrieval.core.grounding import unsupported
from haystack_adv_retrieval.evaluation.bootstrap import compare
from haystack_adv_retrieval.evaluation.indexes import build_index, read_sources
from haystack_adv_retrieval.evaluation.metrics import Scores, cut, span_scores
from haystack_adv_retrieval.evaluation.questions import Question, load_questions
from haystack_adv_retrieval.evaluation.strategies import passage

BUDGETS = (500, 1000, 2000, 4000, 8000)
GIVEN = {"parent": 20, "window": 60, "merge": 60}  # how many results of each pattern are compressed
LEAVES = {"field": "meta.unit", "operator": "==", "value": "leaf"}
# What the defaults were chosen from, one parameter at a time.
VARIANTS: list[dict[str, Any]] = [
    {},
    *({"lexical_weight": weight} for weight in (0.0, 0.4, 1.2)),
    *({"scales": scales} for scales in ([], [2, 6], [2, 6, 20], [2, 6, 18, 54], [1, 3, 9, 27])),
    {"keep_antecedents": False},
    {"cut_to_fit": True},
]
# For a budget that is to be full, as where contexts of any kind are cut at it.
TO_FIT: dict[str, Any] = {"keep_antecedents": False, "cut_to_fit": True}
ABOUT_HEADINGS: list[dict[str, Any]] = [
    {},
    {"section_weight": 0.0},
    {"section_weight": 1.0},
    {"keep_antecedents": False},
]
PARENTS, WORDS = 5, 900  # what speed is measured on
TABLES = ("patterns", "methods", "variants", "speed", "chat")
HANDBOOK = Path(__file__).parents[1] / "examples" / "handbook"
PACKAGES = ("haystack-adv-retrieval", "langchain-classic", "llama-index-core", "sentence-transformers")


class Asked(NamedTuple):
    """A question with its vector, and what each pattern finds."""

    question: Question
    vector: list[float]
    results: dict[str, list[Document]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data")
    parser.add_argument(
        "--cache", type=Path, default=Path(".cache/compression"), help="where embeddings and indexes are kept"
    )
    parser.add_argument("--questions", type=int, help="ask so many questions only, evenly spread")
    parser.add_argument("--chat", help="address of a server with OpenAI's protocol, such as http://127.0.0.1:8080/v1")
    parser.add_argument("--model", default="local", help="name of the chat model, for the server and the heading")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES, help="which tables")
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
    arguments = parser.parse_args()

    use_bundled_data()
    corpus, questions = chunking_evaluation(arguments.folder)
    store = indexed(corpus, arguments.cache / "index")
    questions = questions[:: max(1, len(questions) // (arguments.questions or len(questions)))]
    asked = list(ask(store, questions))
    encoder = Encoder(arguments.cache)
    encoder.encode([question.text for question in questions])

    lines = []
    tables = {
        "patterns": lambda: patterns(store, asked, corpus, encoder),
        "methods": lambda: methods(store, asked, encoder),
        "variants": lambda: variants(store, asked, arguments.folder, arguments.cache),
        "speed": lambda: speed(store, asked),
        "chat": lambda: chat(arguments.chat, arguments.model, arguments.cache) if arguments.chat else (),
    }
    heading = [
        f"{datetime.date.today()}, {len(questions)} questions on {sum(map(len, corpus.values())):,} characters",
        ", ".join(f"{name} {version(name)}" for name in PACKAGES) + ", all-MiniLM-L6-v2",
    ]
    for line in chain(heading, chain.from_iterable(tables[name]() for name in arguments.only)):
        print(line, flush=True)
        lines.append(line)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def indexed(texts: dict[str, str], folder: Path) -> QdrantEdgeDocumentStore:
    build_index([Document(content=text, meta={"source_id": name}) for name, text in texts.items()], folder, {})
    return QdrantEdgeDocumentStore(str(folder))


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
        yield Asked(question, vector, {"hits": hits, **results})


def scores(question: Question, documents: Iterable[Document], budget: int) -> Scores:
    return span_scores(question.spans, cut(map(passage, documents), budget))


def compressed(compressor: Compressor, one: Asked, pattern: str, budget: int) -> Scores:
    given = one.results[pattern][: GIVEN[pattern]]
    kept = compressor.run(one.question.text, given, query_embedding=one.vector, max_length=budget)
    return scores(one.question, kept["documents"], budget)


def packed(packer: ContextPacker, one: Asked, budget: int) -> Scores:
    kept = packer.run(one.question.text, one.results["hits"], query_embedding=one.vector, max_length=budget)
    return scores(one.question, kept["documents"], budget)


def patterns(
    store: QdrantEdgeDocumentStore, asked: Sequence[Asked], corpus: dict[str, str], encoder: Encoder
) -> Iterator[str]:
    """Each pattern alone and compressed, and the peers; then what compression adds, and the lead over the best peer."""
    compressor, packer = Compressor(document_store=store), ContextPacker(store)
    to_fit = Compressor(document_store=store, **TO_FIT)
    results: dict[str, dict[int, list[Scores]]] = defaultdict(dict)
    for budget in BUDGETS:
        for pattern in GIVEN:
            results[pattern][budget] = [scores(one.question, one.results[pattern], budget) for one in asked]
            results[f"{pattern}, compressed"][budget] = [compressed(compressor, one, pattern, budget) for one in asked]
        results["parent, compressed to fit"][budget] = [compressed(to_fit, one, "parent", budget) for one in asked]
        results["packed"][budget] = [packed(packer, one, budget) for one in asked]
    for name, strategy in peers(corpus, encoder).items():
        found = [strategy(one) for one in asked]
        for budget in BUDGETS:
            results[name][budget] = [
                scores(one.question, documents, budget) for one, documents in zip(asked, found, strict=True)
            ]
    ours = [name for name in results if name.split(",")[0] in (*GIVEN, "packed")]
    yield "\nrecall, precision and IoU of the context at each budget of characters"
    yield " " * 46 + "".join(f"{budget:>20}" for budget in BUDGETS)
    for name, by_budget in results.items():
        yield f"{name:<46}" + "".join(f"{means(some):>20}" for some in by_budget.values())
    yield "\ndifference in recall, with its 95 % interval (paired bootstrap)"
    for pattern in GIVEN:
        yield from differences(results, f"{pattern}, compressed", dict.fromkeys(BUDGETS, pattern))
    best = {
        budget: max((name for name in results if name not in ours), key=lambda name: recall(results[name][budget]))
        for budget in BUDGETS
    }
    for name in ("parent, compressed", "parent, compressed to fit"):
        yield from differences(results, name, best)
    yield from differences(results, "parent, compressed", dict.fromkeys(BUDGETS, "packed"))


def peers(corpus: dict[str, str], encoder: Encoder) -> dict[str, Callable[[Asked], list[Document]]]:
    """Make the peers' compressors, which get our parents, and their best strategies, which search by themselves."""
    compressors = {
        "LangChain EmbeddingsFilter, same parents": peers_langchain.sentence_filter(corpus, encoder, k=60),
        "LlamaIndex optimizer 20 %, same parents": peers_llamaindex.sentence_optimizer(encoder, 0.2),
        "LlamaIndex optimizer 50 %, same parents": peers_llamaindex.sentence_optimizer(encoder, 0.5),
    }
    strategies = {
        "LangChain compress sentences k60": peers_langchain.compress(corpus, encoder, k=60),
        "LangChain recursive 200t + bm25 rrf": peers_langchain.recursive(corpus, encoder, bm25=True),
        "LlamaIndex sentence-window 1": peers_llamaindex.sentence_window(corpus, encoder, 1),
    }

    def on_parents(compress: Callable) -> Callable[[Asked], list[Document]]:
        return lambda one: compress(one.question.text, one.results["parent"][: GIVEN["parent"]])

    def alone(strategy: Callable) -> Callable[[Asked], list[Document]]:
        return lambda one: strategy(one.question.text).documents

    return {name: on_parents(one) for name, one in compressors.items()} | {
        name: alone(one) for name, one in strategies.items()
    }


def differences(results: dict[str, dict[int, list[Scores]]], name: str, others: dict[int, str]) -> Iterator[str]:
    for budget, other in others.items():
        one, two = ([each.recall for each in results[key][budget]] for key in (name, other))
        result = compare(one, two)
        interval = f"{result.difference:+.3f} ({result.low:+.3f} to {result.high:+.3f})"
        yield f"{budget:>6}  {name:<27}{interval:<30}against {other}"


def recall(some: Sequence[Scores]) -> float:
    return fmean(one.recall for one in some)


def means(some: Sequence[Scores]) -> str:
    return " ".join(f"{sum(values) / len(values):.3f}" for values in zip(*some, strict=True))


@component
class RememberedEmbedder:
    """The default embedder's vectors, each made once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        vectors = self.encoder.encode([one.content or "" for one in documents]).tolist()
        return {"documents": [replace(one, embedding=vector) for one, vector in zip(documents, vectors, strict=True)]}


def methods(store: QdrantEdgeDocumentStore, asked: Sequence[Asked], encoder: Encoder) -> Iterator[str]:
    """Both ways to score the same sentences, on a part of the questions: embedding them takes its time."""
    asked = asked[:: max(1, len(asked) // 100)]
    compressors = {
        "index": Compressor(document_store=store),
        "embedding": Compressor("embedding", document_embedder=RememberedEmbedder(encoder)),
    }
    yield f"\nrecall of 5 compressed parents by method, {len(asked)} questions"
    yield " " * 12 + "".join(f"R@{budget}".rjust(9) for budget in BUDGETS)
    for name, compressor in compressors.items():
        recalls = []
        for budget in BUDGETS:
            kept = (
                compressor.run(
                    one.question.text, one.results["parent"][:5], query_embedding=one.vector, max_length=budget
                )
                for one in asked
            )
            some = [
                scores(one.question, each["documents"], budget).recall for one, each in zip(asked, kept, strict=True)
            ]
            recalls.append(fmean(some))
        yield f"{name:<12}" + "".join(f"{value:9.3f}" for value in recalls)


def variants(store: QdrantEdgeDocumentStore, asked: Sequence[Asked], folder: Path, cache: Path) -> Iterator[str]:
    """Recall of compressed parents with other settings."""
    confirm = [one.question.group == CONFIRMED_ON for one in asked]
    chosen_on, columns = " and ".join(CHOSEN_ON), "".join(f"R@{budget}".rjust(9) for budget in BUDGETS)
    yield "\nrecall of compressed parents, other settings; mean over the budgets on the texts they were chosen on"
    yield f"({chosen_on}) and on the one they were confirmed on ({CONFIRMED_ON})"
    yield " " * 34 + columns + "   chosen confirmed"
    for settings in VARIANTS:
        recalls = recalls_with(settings, store, asked)
        means = [
            fmean(fmean(row) for row, own in zip(recalls, confirm, strict=True) if own == confirmed)
            for confirmed in (False, True)
        ]
        yield row(settings, recalls) + "".join(f"{mean:9.4f}" for mean in means)
    corpus, questions = documentation(folder)
    store = indexed(corpus, cache / "documentation")
    asked = list(ask(store, questions))
    yield f"\nthe same on documentation, where whole sections are sought, {len(questions)} questions"
    yield " " * 34 + columns
    for settings in ABOUT_HEADINGS:
        yield row(settings, recalls_with(settings, store, asked))


def recalls_with(settings: dict[str, Any], store: QdrantEdgeDocumentStore, asked: Sequence[Asked]) -> list[list[float]]:
    """Measure compressed parents at every budget, a row a question."""
    compressor = Compressor(document_store=store, **settings)
    return [[compressed(compressor, one, "parent", budget).recall for budget in BUDGETS] for one in asked]


def row(settings: dict[str, Any], recalls: Sequence[Sequence[float]]) -> str:
    name = ", ".join(f"{key}={value}" for key, value in settings.items()) or "defaults"
    return f"{name:<34}" + "".join(f"{fmean(column):9.3f}" for column in zip(*recalls, strict=True))


def speed(store: QdrantEdgeDocumentStore, asked: Sequence[Asked]) -> Iterator[str]:
    """Both ways to score the same sentences, in turn; the question's vector is given to both."""
    compressors = {
        "index": Compressor("index", document_store=store, max_length=2000),
        "embedding": Compressor("embedding", document_embedder=LeafEmbedder(), max_length=2000),
    }
    times = defaultdict(list)
    counts = []
    for one in asked[:: max(1, len(asked) // 12)]:
        parents = wide_parents(store, one.results["hits"])
        counts += map(words, parents)
        for name, compressor in compressors.items():
            compressor.warm_up()
            start = time.perf_counter()
            compressor.run(one.question.text, parents, query_embedding=one.vector)
            times[name].append(time.perf_counter() - start)
    size = f"{median(counts):.0f} words ({min(counts)} to {max(counts)})"
    yield f"\n{PARENTS} parents of {size} to 2,000 characters, median time"
    for name in compressors:
        yield f"{name:<10} {1000 * median(times[name]):8.1f} ms"
    yield f"index is {median(times['embedding']) / median(times['index']):.0f} times as fast"


def words(document: Document) -> int:
    return len((document.content or "").split())


def wide_parents(store: QdrantEdgeDocumentStore, hits: Sequence[Document]) -> list[Document]:
    """Widen hits, each to about as many words as wanted; no two of them overlap."""
    expander, parents = SentenceWindowExpander(store), {}
    for hit in hits:
        if len(parents) == PARENTS:
            break
        widened = (expander.run([hit], window_size=size)["documents"][0] for size in range(4, 60, 4))
        parent = min(widened, key=lambda one: abs(words(one) - WORDS))
        source, span = parent.meta["source_id"], span_of(parent.meta)
        if not any(other == source and span.overlaps(own) for other, own in parents):
            parents[source, span] = parent
    return list(parents.values())


def chat(url: str, model: str, cache: Path) -> Iterator[str]:
    """A chat model on the best parent of each of 32 questions about the handbook."""
    files = FileReader().run([path for path in sorted(HANDBOOK.iterdir()) if path.suffix != ".jsonl"])["documents"]
    store = indexed({Path(one.meta["source_id"]).name: one.content for one in files}, cache / "handbook")
    sources = {source.meta["source_id"]: source.content or "" for source in read_sources(store)}
    questions = [one for one in load_questions(HANDBOOK.with_suffix(".questions.jsonl"), sources) if one.spans]
    asked = list(ask(store, questions[:: max(1, len(questions) // 32)][:32]))
    options = {"temperature": 0, "max_tokens": 120}
    generator = OpenAIChatGenerator(
        api_key=Secret.from_token("none"), api_base_url=url, model=model, timeout=600, generation_kwargs=options
    )
    yield f"\n{model} on the best parent of {len(asked)} questions about examples/handbook"
    for method in ("llm", "abstractive"):
        compressor = Compressor(
            method, chat_generator=generator, document_store=store, drop_irrelevant=False, max_workers=1, timeout=600
        )
        outcomes: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        given = kept = altered = unfounded = 0
        for one in asked:
            parent = one.results["parent"][0]
            result = compressor.run(one.question.text, [parent], query_embedding=one.vector)
            report, (document,) = result["report"], result["documents"]
            given, kept = given + report["given"], kept + report["kept"]
            if document.meta["compression"] == "abstractive":
                unfounded += bool(unsupported(document.content, parent.content))
            else:
                altered += not is_verbatim(document, sources[document.meta["source_id"]])
            gold = one.question.spans.get(parent.meta["source_id"], ())
            holds = any(span_of(parent.meta).overlaps(span) for span in gold)
            outcomes[holds][next(iter(report["fallbacks"].values()), "a usable reply").split(":")[0]] += 1
        yield f"{method}: {kept / given:.2f} of the characters kept, {altered} extracts not verbatim, " + (
            f"{unfounded} summaries with unsupported claims" if method == "abstractive" else "sentences by number"
        )
        for holds, label in ((True, "with the answer"), (False, "without it")):
            found = ", ".join(f"{count} {outcome}" for outcome, count in outcomes[holds].most_common())
            yield f"   {outcomes[holds].total()} documents {label}: {found}"


def is_verbatim(document: Document, source: str) -> bool:
    pieces = "".join(source[start:end] for start, end in document.meta["kept_spans"])
    return "".join((document.content or "").replace("…", "").split()) == "".join(pieces.replace("…", "").split())


if __name__ == "__main__":
    main()
