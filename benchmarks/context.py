"""
Does the context hold the answer? Peers and this package side by side, in one run, with one embedding model.

Chroma's chunking evaluation (https://github.com/brandonstarxel/chunking_evaluation): questions with gold spans in a few
long texts, which are searched together. Contexts are cut at a budget of characters, in the strategy's own order.

    pip install -e ".[offline]" -r benchmarks/requirements.txt
    python benchmarks/context.py FOLDER --output benchmarks/results/context.txt

FOLDER/chunking_evaluation holds `corpora/*.md` and `questions.csv`. Embeddings and the index are kept in the cache, so
only the first run is slow.
"""

import argparse
import datetime
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import peers_haystack
import peers_langchain
import peers_llamaindex
from corpora import chunking_evaluation
from embeddings import Encoder, use_bundled_data
from haystack import Document

from haystack_adv_retrieval.evaluation.bootstrap import compare
from haystack_adv_retrieval.evaluation.evaluate import evaluate
from haystack_adv_retrieval.evaluation.indexes import build_index
from haystack_adv_retrieval.evaluation.results import Evaluation, Outcome
from haystack_adv_retrieval.pipelines import load_pipeline

BUDGETS = (500, 1000, 2000, 4000, 8000)
COLUMNS = {f"recall@{budget}": f"R@{budget}" for budget in BUDGETS} | {
    "recall@top5": "R@top5",
    "precision@2000": "P@2000",
    "iou@2000": "IoU@2000",
    "mrr": "MRR",
}
PACKAGES = (
    "haystack-adv-retrieval",
    "haystack-ai",
    "langchain-classic",
    "langchain-text-splitters",
    "llama-index-core",
    "sentence-transformers",
    "qdrant-edge-py",
)
DEFAULT = "ours: packed"
# Patterns that are given each budget in turn, as they would be in use; all others are cut there.
BUDGETED = {
    "ours: packed, budget": ("packed", "packer.max_length"),
    "ours: compressed, budget": ("compressed", "compressor.max_length"),
    "ours: sentence window 1, budget": ("sentence_window", "expander.max_length"),
}
# The index of the pipelines as they are, and two with the sizes of the peers' classic patterns.
SENTENCES, CHARACTERS, TOKENS = "sentences", "2000/400 characters", "2048/512/128 tokens"
INDEXES = {
    SENTENCES: {},
    CHARACTERS: {"splitter.block_sizes": [2000, 400], "splitter.split_by": "character", "splitter.leaf": "chunk"},
    TOKENS: {"splitter.block_sizes": [2048, 512, 128], "splitter.split_by": "token", "splitter.leaf": "chunk"},
}
# Index, pipeline and settings of the others.
OURS = {
    DEFAULT: (SENTENCES, "packed", {"packer.max_length": 8000}),
    "ours: sentence window 1": (SENTENCES, "sentence_window", {"expander.top_k": 60}),
    "ours: parent of 400 words": (SENTENCES, "parent", {"expander.top_k": 20}),
    "ours: parent 400/2000": (CHARACTERS, "parent", {"expander.top_k": 20}),
    "ours: auto-merging 2048/512/128 k12": (TOKENS, "auto_merging", {"retriever.top_k": 12, "merger.top_k": 12}),
}
PEERS = (peers_haystack, peers_langchain, peers_llamaindex)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data")
    parser.add_argument(
        "--cache", type=Path, default=Path(".cache/context"), help="where embeddings and the index are kept"
    )
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()

    use_bundled_data()
    corpus, questions = chunking_evaluation(arguments.folder)
    encoder = Encoder(arguments.cache)
    encoder.encode([question.text for question in questions])
    strategies: dict[str, Callable] = {}
    for peers in PEERS:
        progress(f"indexing for {peers.__doc__}")
        strategies |= peers.strategies(corpus, encoder)
    peers = list(strategies)
    progress("indexing for this package")
    documents = [Document(content=text, meta={"source_id": name}) for name, text in corpus.items()]
    folders = {name: arguments.cache / name.replace("/", "-") for name in INDEXES}
    for name, settings in INDEXES.items():
        build_index(documents, folders[name], settings)
    for name, (pipeline, parameter) in BUDGETED.items():
        for budget in BUDGETS:
            overrides = {parameter: budget}
            strategies[f"{name} {budget}"] = load_pipeline(pipeline, index=folders[SENTENCES], overrides=overrides)
    for name, (index, pipeline, settings) in OURS.items():
        strategies[name] = load_pipeline(pipeline, index=folders[index], overrides=settings)
    progress(f"asking {len(questions)} questions {len(strategies)} times")
    evaluation = evaluate(strategies, questions, budgets=BUDGETS)
    evaluation = replace(evaluation, outcomes=joined(evaluation.outcomes))
    text = "\n".join(report(evaluation, peers, sum(map(len, corpus.values()))))
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")


def joined(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Sequence[Outcome]]:
    """Make one row of the runs of a pattern at each budget; what is not about a budget comes from the run at 2,000."""
    rows = dict(outcomes)
    for name in BUDGETED:
        runs = {budget: rows.pop(f"{name} {budget}") for budget in BUDGETS}
        rows[name] = [
            replace(one, scores=one.scores | {f"recall@{b}": runs[b][number].scores[f"recall@{b}"] for b in BUDGETS})
            for number, one in enumerate(runs[2000])
        ]
    return {name: rows[name] for name in sorted(rows, key=lambda name: (name.startswith("ours"), name != DEFAULT))}


def report(evaluation: Evaluation, peers: list[str], size: int) -> Iterator[str]:
    yield f"{datetime.date.today()}, {len(evaluation.questions)} questions on {size:,} characters"
    yield ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    yield "all-MiniLM-L6-v2, normalised, cosine; peers by brute force"
    yield ""
    width = max(map(len, evaluation.outcomes)) + 2
    yield "strategy".ljust(width) + "".join(title.rjust(10) for title in (*COLUMNS.values(), "(top5)", "length"))
    for name, outcomes in evaluation.outcomes.items():
        means = [f"{evaluation.mean(name, metric):.3f}" for metric in COLUMNS]
        first = [sum(len(one.content or "") for one in outcome.answer.documents[:5]) for outcome in outcomes]
        lengths = [f"{sum(values) / len(values):.0f}" for values in (first, [one.context_length for one in outcomes])]
        errors = sum(one.error is not None for one in outcomes)
        row = name.ljust(width) + "".join(value.rjust(10) for value in means + lengths)
        yield f"{row}  {errors} errors" if errors else row
    yield ""
    yield f"{DEFAULT} against the best peer at each budget (difference, 95 % interval of a paired bootstrap)"
    for metric in list(COLUMNS)[: len(BUDGETS)]:
        best = max(peers, key=lambda name: evaluation.mean(name, metric))
        result = compare(evaluation.scores(DEFAULT, metric), evaluation.scores(best, metric))
        interval = f"{result.difference:+.3f} ({result.low:+.3f} to {result.high:+.3f})"
        yield f"{COLUMNS[metric]:<8}{interval:<28}{result.verdict:<28}{best}"


def progress(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
