"""
Context packing: on three kinds of text, beside peers and other patterns; what each part of it adds; what it costs.

Chroma's chunking evaluation (long texts, evidence of a sentence or two; also searched by the best peers) and two data
sets of Anthropic's cookbook: documentation (the evidence is whole sections) and code (it is chunks of a file).
The patterns search one index of sentences. Recall is the share of gold characters in the context. All contexts are cut
at the budget; a packed one is made once, for 8,000 characters, and the other patterns return all of their hits. The
reach, the scales and the weight of words were chosen on two of the three labelled texts of the first set and confirmed
on the third; the other settings were chosen with all data in view. They are the same for all.

    pip install -e ".[offline]" -r benchmarks/requirements.txt
    python benchmarks/packing.py FOLDER --output benchmarks/results/packing.txt

FOLDER holds `chunking_evaluation`, `anthropic_docs` and `codebase_chunks`. Vectors and indexes are kept in the cache;
a plot is drawn beside the output.
"""

import argparse
import datetime
import gc
import itertools
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

import numpy as np
import peers_langchain
import peers_llamaindex
from context import BUDGETS, PACKAGES
from corpora import chunking_evaluation
from embeddings import Encoder, use_bundled_data
from haystack import Document
from haystack.document_stores.types import DuplicatePolicy

from haystack_adv_retrieval import ContextPacker, QdrantEdgeDocumentStore
from haystack_adv_retrieval.context.leaf_pool import ids_around, pool_of, source_of
from haystack_adv_retrieval.core import chunks, evidence, packing
from haystack_adv_retrieval.core.spans import Span, merge
from haystack_adv_retrieval.evaluation import plots
from haystack_adv_retrieval.evaluation.bootstrap import compare
from haystack_adv_retrieval.evaluation.indexes import build_index
from haystack_adv_retrieval.evaluation.metrics import Passage, cut, span_scores
from haystack_adv_retrieval.evaluation.questions import Question
from haystack_adv_retrieval.evaluation.strategies import passage
from haystack_adv_retrieval.pipelines import last_documents, load_pipeline, retrieve, run_pipeline

LARGEST = BUDGETS[-1]
PEERS: dict[str, Callable] = {  # the best ones at one budget or another; all of them are in context.py
    "LangChain recursive 200t + bm25 rrf": lambda *data: peers_langchain.recursive(*data, bm25=True),
    "LangChain compress sentences k60": lambda *data: peers_langchain.compress(*data, k=60),
    "LlamaIndex sentence-window 1": lambda *data: peers_llamaindex.sentence_window(*data, 1),
    "LlamaIndex hier 2048/512/128 leaves": lambda *data: peers_llamaindex.hierarchy(*data, merge=False, k=40),
}
OTHERS = {  # enough results to fill the largest budget
    "window": ("sentence_window", {"retriever.top_k": 60, "expander.top_k": 60}),
    "parent": ("parent", {"retriever.top_k": 60, "expander.top_k": 20}),
    "merge": ("auto_merging", {"retriever.top_k": 60, "merger.top_k": 60}),
}
FLOOR = 0.5  # the default
ABLATIONS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "leaves alone": {"scales": ()},
    "narrow surroundings alone": {"scales": (2,)},
    "wide surroundings alone": {"scales": (20,)},
    "without words": {"lexical_weight": 0},
    "without vectors": {"vectors": False},
    "without sections": {"section_weight": 0},
    "with an adjacency bonus of .05": {"adjacency_bonus": 0.05},
    "not ordered by parts": {"in_parts": False},
}
FLOORS = (0, 0.5, 0.6, 0.7, 0.8)
CHOICES = [  # reach, scales, weight of words
    (12, (2, 6, 20), 0.8),
    *((reach, (2, 6, 20), 0.8) for reach in (4, 8, 16)),
    *((12, scales, 0.8) for scales in ((2, 6), (1, 3, 9), (4, 20))),
    *((12, (2, 6, 20), weight) for weight in (0.6, 1.0)),
]
CHOSEN_ON, CONFIRMED_ON = ("finance", "wikitexts"), "chatlogs"
SIZES = (12_000, 1_000_000)
SMALL, LARGE = 100, 100_000  # leaves of a source
HITS, DIMENSION, REPEATS = 60, 384, 40
LEAVES = {"field": "meta.unit", "operator": "==", "value": "leaf"}
WORDS = ["refund", "order", "parcel", "account", "member", "device", "battery", "invoice", "manual", "sensor"]

Corpus = dict[str, str]
Context = Callable[[Question], Sequence[Passage]]
# The plot stands alone, so it brings the colours that a report would give it.
STYLE = """<style>svg{background:#fff;font:12px system-ui,sans-serif}text{fill:#5e6168}.middle{text-anchor:middle}
.end{text-anchor:end}.grid{stroke:#ececee}.axis{stroke:#5e6168}.line{fill:none;stroke:currentColor;stroke-width:2}
.dot{fill:currentColor}.name{fill:currentColor}.c0{color:#6b6e76}.c1{color:#c2570c}.c2{color:#0f7b6c}
.c3{color:#a8328f}.c4{color:#2563c9}</style>"""


@dataclass
class Given:
    """What the packer works on for a question: its vector, and the leaves around the hits."""

    question: Question
    vector: np.ndarray
    leaves: list[Document]
    pool: evidence.Pool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data")
    parser.add_argument("--cache", type=Path, default=Path(".cache/packing"), help="where vectors and indexes are kept")
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
    parser.add_argument("--only", nargs="+", choices=[*SETS, "speed"], default=[*SETS, "speed"], help="measure a part")
    arguments = parser.parse_args()
    use_bundled_data()
    plot = arguments.output.with_suffix(".svg") if arguments.output else None
    lines: list[str] = []
    for line in itertools.chain(
        [f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"],
        [", ".join(f"{name} {version(name)}" for name in PACKAGES), ""],
        *(quality(name, arguments.folder, arguments.cache, plot) for name in SETS if name in arguments.only),
        speed(arguments.folder, arguments.cache) if "speed" in arguments.only else (),
    ):
        print(line, flush=True)
        lines.append(line)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def quality(name: str, folder: Path, cache: Path, plot: Path | None) -> Iterator[str]:
    corpus, questions = SETS[name](folder)
    yield f"{name}: {len(questions)} questions, {len(corpus)} texts, {sum(map(len, corpus.values())):,} characters"
    yield f"{'':38}" + "".join(f"R@{budget}".rjust(9) for budget in BUDGETS)
    index = indexed(corpus, cache / name)
    recalls: dict[str, np.ndarray] = {}
    for peer, build in PEERS.items() if name == "evaluation" else ():
        ask = build(corpus, Encoder(cache))
        recalls[peer] = measured(questions, lambda q, ask=ask: [passage(one) for one in ask(q.text).documents])
        yield row(peer, recalls[peer])
    for other, (pipeline, settings) in OTHERS.items():
        loaded = load_pipeline(pipeline, index=index, overrides=settings)
        recalls[other] = measured(questions, lambda q, p=loaded: [passage(one) for one in retrieve(p, q.text)])
        yield row(other, recalls[other])
    pipeline = load_pipeline("packed", index=index, overrides={"packer.max_length": LARGEST})
    outputs = {question.text: run_pipeline(pipeline, question.text) for question in questions}
    found = {text: [passage(one) for one in last_documents(pipeline, each)] for text, each in outputs.items()}
    ours = measured(questions, lambda q: found[q.text])
    yield row("packed", ours)
    yield from compared(ours, recalls)
    if plot and name == "evaluation":
        draw(plot, recalls | {"packed": ours})

    def pools(reach: int) -> list[Given]:
        return [given(pipeline, question, outputs[question.text], reach) for question in questions]

    yield from parts(pools(pipeline.get_component("packer").reach))
    if name == "evaluation":
        yield from choices(pools)


def measured(questions: Sequence[Question], context: Context) -> np.ndarray:
    """Measure recall at every budget, shape (questions, budgets)."""
    found = ((question, context(question)) for question in questions)
    return np.array([[span_scores(q.spans, cut(shown, b)).recall for b in BUDGETS] for q, shown in found])


def row(label: str, recalls: np.ndarray) -> str:
    return f"{label:38}" + "".join(f"{mean:9.3f}" for mean in recalls.mean(axis=0))


def compared(ours: np.ndarray, others: Mapping[str, np.ndarray]) -> Iterator[str]:
    for place, budget in enumerate(BUDGETS):
        best = max(others, key=lambda other: others[other][:, place].mean())
        result = compare(ours[:, place], others[best][:, place])
        interval = f"{result.difference:+.3f} ({result.low:+.3f} to {result.high:+.3f})"
        yield f"packed at {budget}: {interval}, {result.verdict} than the best other, {best}"
    yield ""


def given(pipeline: Any, question: Question, outputs: dict[str, Any], reach: int) -> Given:
    packer = pipeline.get_component("packer")
    hits = outputs["retriever"]["documents"]
    leaves = packer.document_store.get_documents_by_id(ids_around(hits, reach, packer.pool_size))
    leaves.sort(key=lambda leaf: (source_of(leaf), leaf.meta[chunks.SPLIT_ID]))
    vector = np.array(outputs["embedder"]["embedding"])
    return Given(question, vector, leaves, pool_of(leaves, hits, "character"))


def packed(
    one: Given,
    max_length: int = LARGEST,
    *,
    vectors: bool = True,
    adjacency_bonus: float = 0.0,
    floor: float = FLOOR,
    in_parts: bool = True,
    **settings: Any,
) -> list[Passage]:
    """Pack with other settings, or without some of the steps."""
    scores = evidence.score(one.pool, one.question.text, one.vector if vectors else None, **settings)
    groups = packing.pack(one.pool, scores, max_length, adjacency_bonus=adjacency_bonus, floor=floor)
    divided = packing.parts(one.pool, groups, max_length) if in_parts else [sorted(itertools.chain(*groups))]
    runs = [run for part in divided for run in packing.runs(one.pool, part)]
    runs.sort(key=lambda run: -scores[run].max())
    ends = [(one.leaves[run[0]].meta, one.leaves[run[-1]].meta[chunks.END]) for run in runs]
    spans = [(first[chunks.SOURCE_ID], Span(first[chunks.START], end)) for first, end in ends]
    return [Passage(source, (span,), span.length) for source, span in spans]


def parts(pools: Sequence[Given]) -> Iterator[str]:
    by_question = {one.question.text: one for one in pools}
    questions = [one.question for one in pools]
    for label, settings in ABLATIONS.items():
        yield row(label, measured(questions, lambda q, s=settings: packed(by_question[q.text], **s)))
    yield "an early stop: recall at 4,000, and the mean length of the contexts"
    for floor in FLOORS:
        contexts = [packed(one, 4000, floor=floor) for one in pools]
        recall = fmean(
            span_scores(one.question.spans, shown).recall for one, shown in zip(pools, contexts, strict=True)
        )
        yield f"{f'floor {floor}':38}{recall:9.3f}{fmean(sum(p.length for p in shown) for shown in contexts):9.0f}"
    yield ""


def choices(pools: Callable[[int], list[Given]]) -> Iterator[str]:
    yield f"settings by mean recall on {' and '.join(CHOSEN_ON)}, and what they give on {CONFIRMED_ON}"
    made = {reach: pools(reach) for reach in {reach for reach, *_ in CHOICES}}
    tried = []
    for reach, scales, weight in CHOICES:
        by_question = {one.question.text: one for one in made[reach]}
        confirm = np.array([one.question.group == CONFIRMED_ON for one in made[reach]])
        settings = {"scales": scales, "lexical_weight": weight}
        recalls = measured(
            [one.question for one in made[reach]], lambda q, p=by_question, s=settings: packed(p[q.text], **s)
        )
        tried.append((recalls[~confirm].mean(), recalls[confirm].mean(), f"reach {reach}, {scales}, words {weight}"))
    for place, (chosen, confirmed, label) in enumerate(sorted(tried, key=lambda one: -one[0]), start=1):
        yield f"{place:4}. {chosen:.4f}  {confirmed:.4f}  {label}"
    yield ""


def draw(path: Path, recalls: Mapping[str, np.ndarray]) -> None:
    """Plot recall by budget: the best peers at the smallest and the largest budget, other patterns, the packer."""
    best = [max(PEERS, key=lambda peer, place=place: recalls[peer][:, place].mean()) for place in (0, -1)]
    shown = dict.fromkeys([*best, "window", "merge", "packed"])
    series = {
        name: [plots.Point(b, float(m)) for b, m in zip(BUDGETS, recalls[name].mean(axis=0), strict=True)]
        for name in shown
    }
    drawn = plots.lines(series, label="Recall by budget", x="characters of context", y="recall of gold characters")
    text = str(drawn).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    path.write_text(text.replace(">", f">{STYLE}", 1) + "\n", encoding="utf-8")


def indexed(corpus: Corpus, folder: Path) -> Path:
    if not folder.exists():
        print(f"indexing into {folder}", file=sys.stderr, flush=True)
        build_index([Document(content=text, meta={"source_id": name}) for name, text in corpus.items()], folder, {})
    return folder


def documentation(folder: Path) -> tuple[Corpus, list[Question]]:
    """Read pages put together from their sections, and questions whose gold is sections."""
    folder = folder / "anthropic_docs"
    corpus: Corpus = {}
    places: dict[str, tuple[str, Span]] = {}
    for section in json.loads((folder / "summary_indexed_docs.json").read_text("utf-8")):
        page = section["chunk_link"].split("#")[0]
        start = len(corpus.setdefault(page, ""))
        text = f"## {section['chunk_heading']}\n\n{section['text'].strip()}"
        corpus[page] += text + "\n\n"
        places.setdefault(section["chunk_link"], (page, Span(start, start + len(text))))
    rows = json.loads((folder / "docs_evaluation_dataset.json").read_text("utf-8"))
    gold = [(one["question"], [places[link] for link in one["correct_chunks"] if link in places]) for one in rows]
    return corpus, [labelled(text, spans) for text, spans in gold if spans]


def code(folder: Path) -> tuple[Corpus, list[Question]]:
    """Read code files, and questions whose gold is chunks of them."""
    folder = folder / "codebase_chunks"
    corpus: Corpus = {}
    places: dict[tuple[str, int], tuple[str, Span]] = {}
    for file in json.loads((folder / "codebase_chunks.json").read_text("utf-8")):
        name, text, end = file["original_uuid"], file["content"], 0
        corpus[name] = text
        for chunk in file["chunks"]:
            start = text.index(chunk["content"], max(0, end - 50))
            end = start + len(chunk["content"])
            places[name, chunk["original_index"]] = (name, Span(start, end))
    rows = map(json.loads, (folder / "queries.jsonl").read_text("utf-8").splitlines())
    return corpus, [
        labelled(one["query"], [places[name, index] for name, index in one["golden_chunk_uuids"]]) for one in rows
    ]


def labelled(text: str, gold: list[tuple[str, Span]]) -> Question:
    sources = {source for source, _ in gold}
    spans = {name: tuple(merge(span for at, span in gold if at == name)) for name in sources}
    return Question(text, frozenset(sources), spans)


def speed(folder: Path, cache: Path) -> Iterator[str]:
    gc.collect()
    gc.freeze()  # what was measured before is no part of this
    yield f"from {HITS} hits to 4,000 characters on the embedded engine: milliseconds, and leaves looked at"
    yield f"{'leaves':>10}{'of a source':>13}{'hits':>24}{'p50':>8}{'p95':>8}{'CPU p50':>9}{'pool':>6}"
    for name, read in SETS.items():
        corpus, questions = read(folder)
        pipeline = load_pipeline("packed", index=indexed(corpus, cache / name))
        packer = pipeline.get_component("packer")
        asked = [question.text for question in questions[:: len(questions) // REPEATS]]
        outputs = [(text, run_pipeline(pipeline, text)) for text in asked]
        calls = [(text, one["retriever"]["documents"], one["embedder"]["embedding"]) for text, one in outputs]
        leaves = packer.document_store.count_documents_by_filter(LEAVES)
        yield f"{leaves:>10,}{leaves // len(corpus):>13,}{f'of {name}':>24}{timed(packer, calls)}"
    for leaves in SIZES:
        store = synthetic(leaves, cache)
        half = leaves // 2
        for first, of_a_source in ((0, SMALL), (half, min(LARGE, half))):
            for groups in (HITS, HITS // 4):
                apart = "all apart" if groups == HITS else f"in {groups} places"
                calls = list(made_up(store, leaves, range(first, first + half), groups))
                yield f"{leaves:>10,}{of_a_source:>13,}{apart:>24}{timed(ContextPacker(store), calls)}"
    yield f"load of the machine at the end: {os.getloadavg()[0]:.1f}"


def timed(packer: ContextPacker, calls: Sequence[tuple[str, list[Document], list[float]]]) -> str:
    """Time the packing of some hits, each with their question and its vector."""
    clock, processor = [], []
    for query, hits, vector in calls:
        now, now_processor = time.perf_counter(), time.process_time()
        packer.run(query, hits, vector)
        clock.append(1e3 * (time.perf_counter() - now))
        processor.append(1e3 * (time.process_time() - now_processor))
    pools = [len(ids_around(hits, packer.reach, packer.pool_size)) for _, hits, _ in calls]
    return f"{median(clock):8.1f}{quantiles(clock, n=20)[-1]:8.1f}{median(processor):9.1f}{median(pools):6.0f}"


def made_up(
    store: QdrantEdgeDocumentStore, leaves: int, among: range, groups: int
) -> Iterator[tuple[str, list[Document], list[float]]]:
    """Make up questions with hits in so many places."""
    chance = random.Random(1)
    for _ in range(REPEATS):
        places: dict[int, None] = {}
        for start in chance.sample(among[:-12], groups):
            places |= dict.fromkeys(chance.sample(range(start, start + 12), HITS // groups))
        hits = store.get_documents_by_id([address(place, leaves)[0] for place in places], return_embedding=False)
        vector = np.random.default_rng(0).standard_normal(DIMENSION).tolist()
        yield " ".join(chance.sample(WORDS, 5)), hits, vector


def synthetic(leaves: int, cache: Path) -> QdrantEdgeDocumentStore:
    """Make an index of made-up sentences with random vectors, once: half in small sources, half in large ones."""
    store = QdrantEdgeDocumentStore(str(cache / f"synthetic-{leaves}"))
    if store.count_documents() == leaves:
        return store
    print(f"writing {leaves:,} leaves", file=sys.stderr, flush=True)
    chance, numbers = random.Random(0), np.random.default_rng(0)
    for start in range(0, leaves, 6_000):
        vectors = numbers.standard_normal((min(6_000, leaves - start), DIMENSION), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        places = range(start, start + len(vectors))
        made = [leaf(place, leaves, vector.tolist(), chance) for place, vector in zip(places, vectors, strict=True)]
        store.write_documents(made, policy=DuplicatePolicy.OVERWRITE)
    return store


def leaf(place: int, leaves: int, vector: list[float], chance: random.Random) -> Document:
    id_, source, ordinal, count = address(place, leaves)
    text = " ".join(chance.choices(WORDS, k=18)).capitalize() + ". "
    meta = {
        chunks.UNIT: "leaf",
        chunks.SOURCE_ID: source,
        chunks.SOURCE_VERSION: "1",
        chunks.LEVEL: 2,
        chunks.SPLIT_ID: ordinal,
        chunks.START: 200 * ordinal,
        chunks.END: 200 * ordinal + len(text),
        chunks.HEADINGS: f"Section {ordinal // 20}",
        chunks.LEAF_LEVEL: 2,
        chunks.LEAF_START: ordinal,
        chunks.LEAF_END: ordinal + 1,
        chunks.LEAF_COUNT: count,
    }
    return Document(id=id_, content=text, meta=meta, embedding=vector)


def address(place: int, leaves: int) -> tuple[str, str, int, int]:
    """Compute the id, the source, the ordinal and the number of leaves of the source of a synthetic leaf."""
    half = leaves // 2
    count = SMALL if place < half else min(LARGE, half)
    number, ordinal = divmod(place if place < half else place - half, count)
    source = f"source {count}-{number}"
    return chunks.chunk_id(source, "1", 2, ordinal), source, ordinal, count


SETS = {"evaluation": chunking_evaluation, "documentation": documentation, "code": code}

if __name__ == "__main__":
    main()
