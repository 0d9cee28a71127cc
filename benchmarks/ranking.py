"""
LLM rankers without an LLM: what they make of a judge that errs, of a slow server, and of replies out of shape.

NovelEval (https://github.com/sunnweiwei/RankGPT): 21 queries, 420 passages, grades 0 to 2. Each query's candidates are
the 100 best passages of BM25. The judge knows the grades, adds noise to them, prefers what is shown first, and now and
then forgets a passage; what it says depends on nothing but its prompt.

    python benchmarks/ranking.py FOLDER --output benchmarks/results/ranking.txt

FOLDER holds `corpus.tsv`, `queries.tsv` and `qrels.txt`.
"""

import argparse
import datetime
import logging
import math
import os
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from haystack import Document
from haystack.components.generators.chat import MockChatGenerator
from haystack.components.rankers import LLMRanker as HaystackRanker
from haystack.components.retrievers import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from scripted_chat_server import Answer, ChatServer

from haystack_adv_retrieval.components.llm_ranker import LLMRanker
from haystack_adv_retrieval.core.chunks import digest

REPLIES = Path(__file__).parent.parent / "tests" / "data" / "replies" / "rankings.txt"
DEPTH = 100
LATENCY = 0.05
NOISE = {"mild": (0.5, 0.5), "strong": (0.8, 0.8)}  # standard deviation; grades lost from the first place to the last
FORGETS = 0.02
HAYSTACK = "Haystack LLMRanker, one prompt"
OURS: dict[str, dict[str, Any]] = {
    "listwise": {},
    "listwise, num_passes=2": {"num_passes": 2},
    "listwise, num_permutations=3": {"num_permutations": 3},
    "tournament, num_rounds=1": {"strategy": "tournament", "num_rounds": 1},
    "tournament": {"strategy": "tournament"},
    "tournament, num_rounds=5": {"strategy": "tournament", "num_rounds": 5},
    "pointwise": {"strategy": "pointwise"},
}
ORDERS: dict[str, Callable[[list[Document]], list[Document]]] = {
    "first stage": lambda found: found,
    "random": lambda found: random.Random(1).sample(found, len(found)),
    "reversed": lambda found: found[::-1],
}


class Judge:
    """A chat generator that knows the grades of passages, and errs."""

    def __init__(self, grades: dict[str, int], noise: float, bias: float) -> None:
        self.grades = grades  # by the start of the passage
        self.noise = noise
        self.bias = bias
        self.calls = 0

    def run(self, messages: list[ChatMessage]) -> dict[str, list[ChatMessage]]:
        self.calls += 1
        prompt = messages[0].text or ""
        chance = random.Random(digest(prompt))
        is_haystack = "\ncontent: " in prompt
        shown = re.findall(r"^content: (.*)" if is_haystack else r"<passage[^>]*>\n(.*)", prompt, re.MULTILINE)
        worth = [self.grades.get(text[:60], 0) + chance.gauss(0, self.noise) for text in shown]
        if "<passage>" in prompt:
            return {"replies": [self._grade(worth[0])]}
        worth = [value - self.bias * place / len(shown) for place, value in enumerate(worth)]
        labels = sorted(range(1, len(shown) + 1), key=lambda label: -worth[label - 1])
        labels = [label for label in labels if chance.random() > FORGETS]
        reply = {"documents": [{"index": label} for label in labels]} if is_haystack else {"ranking": labels}
        return {"replies": [ChatMessage.from_assistant(str(reply).replace("'", '"'))]}

    @staticmethod
    def _grade(worth: float) -> ChatMessage:
        """Grade from 0 to 3 with a probability for each grade, as a model that returns log-probabilities."""
        weights = [math.exp(-((1.5 * worth - grade) ** 2)) for grade in range(4)]
        top = [
            {"token": str(grade), "logprob": math.log(weight / sum(weights))} for grade, weight in enumerate(weights)
        ]
        best = str(max(range(4), key=weights.__getitem__))
        return ChatMessage.from_assistant(best, meta={"logprobs": {"content": [{"token": best, "top_logprobs": top}]}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data")
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
    arguments = parser.parse_args()
    logging.getLogger("haystack").setLevel(logging.ERROR)
    logging.getLogger("haystack_adv_retrieval").setLevel(logging.ERROR)
    lines = [
        f"{datetime.date.today()}",
        ", ".join(f"{name} {version(name)}" for name in ("haystack-adv-retrieval", "haystack-ai")),
        *order_sensitivity(arguments.folder),
        *calls_and_time(),
        *malformed_replies(),
    ]
    print("\n".join(lines))
    if arguments.output:
        arguments.output.parent.mkdir(exist_ok=True)
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rankers(make_judge: Callable[[], Any]) -> Iterator[tuple[str, Any, Any]]:
    """Make each ranker with a judge of its own."""
    judge = make_judge()
    yield HAYSTACK, HaystackRanker(chat_generator=judge, top_k=DEPTH), judge
    for name, settings in OURS.items():
        judge = make_judge()
        yield name, LLMRanker(judge, **settings, max_workers=1), judge


# --- order sensitivity ---


def order_sensitivity(folder: Path) -> Iterator[str]:
    corpus = dict(row.split("\t", 1) for row in (folder / "corpus.tsv").read_text("utf-8").splitlines())
    queries = dict(row.split("\t", 1) for row in (folder / "queries.tsv").read_text("utf-8").splitlines())
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for row in (folder / "qrels.txt").read_text("utf-8").splitlines():
        query, _, passage, grade = row.split()
        grades[query][passage] = int(grade)
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=name, content=text) for name, text in corpus.items()])
    retriever = InMemoryBM25Retriever(store, top_k=DEPTH)
    found = {query: retriever.run(text)["documents"] for query, text in queries.items()}

    first_stage = fmean(ndcg([each.id for each in found[query]], grades[query]) for query in queries)
    yield ""
    yield f"nDCG@10 by the order of the {DEPTH} candidates; {len(queries)} queries; BM25 alone: {first_stage:.3f}"
    for level, (noise, bias) in NOISE.items():
        yield ""
        yield f"{level} noise: standard deviation {noise}, {bias} grades lost from the first place to the last"
        yield f"{'strategy':<34}{''.join(name.rjust(13) for name in ORDERS)}{'loss':>9}{'calls':>8}"
        scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        calls: dict[str, list[int]] = defaultdict(list)
        for query, text in queries.items():
            known = {corpus[passage][:60]: grade for passage, grade in grades[query].items()}
            for order, arrange in ORDERS.items():
                for name, ranker, judge in rankers(lambda: Judge(known, noise, bias)):  # noqa: B023
                    ranked = ranker.run(query=text, documents=arrange(found[query]))["documents"]
                    scores[name][order].append(ndcg([each.id for each in ranked], grades[query]))
                    calls[name].append(judge.calls)
        for name, by_order in scores.items():
            means = [fmean(by_order[order]) for order in ORDERS]
            values = "".join(f"{mean:>13.3f}" for mean in means)
            yield f"{name:<34}{values}{means[0] - means[-1]:>9.3f}{fmean(calls[name]):>8.0f}"
    yield ""
    yield "loss: first stage less reversed. It is exactly 0 where the prompts do not depend on the order."
    yield "The judge does not mind 100 passages in one prompt; models do."


def ndcg(ids: Sequence[str], grades: dict[str, int], k: int = 10) -> float:
    def gain(values: Sequence[int]) -> float:
        return sum((math.pow(2, grade) - 1) / math.log2(rank + 1) for rank, grade in enumerate(values[:k], 1))

    return gain([grades.get(name, 0) for name in ids]) / gain(sorted(grades.values(), reverse=True))


# --- calls and time ---


def calls_and_time() -> Iterator[str]:
    server = ChatServer()
    documents = [Document(id=str(number), content=f"Passage {number}.") for number in range(DEPTH)]
    server.script(lambda body: Answer("2" if "Grade" in str(body) else "1 > 2", delay=LATENCY))
    yield ""
    yield f"{DEPTH} candidates, a server that takes {LATENCY * 1000:.0f} ms for each reply"
    yield f"{'strategy':<34}{'calls':>8}{'4 at once':>12}{'16 at once':>12}  seconds"
    for name, settings in OURS.items():
        seconds = []
        for max_workers in (4, 16):
            ranker = LLMRanker(server.generator(), **settings, max_workers=max_workers)
            ranker.warm_up()
            start = time.perf_counter()
            report = ranker.run("q", documents)["report"]
            seconds.append(time.perf_counter() - start)
        yield f"{name:<34}{report['calls']:>8}{seconds[0]:>12.2f}{seconds[1]:>12.2f}"
    server.stop()


# --- malformed replies ---


def malformed_replies() -> Iterator[str]:
    parts = re.split(r"^--- (\w+): (.+)\n", REPLIES.read_text("utf-8"), flags=re.MULTILINE)[1:]
    replies = list(zip(parts[0::3], parts[1::3], parts[2::3], strict=True))
    documents = [Document(id=str(number), content=f"Passage {number}.") for number in range(1, 6)]
    yield ""
    yield f"{len(replies)} replies that mean the order 4, 2, 5, 1, 3, or that cannot be read"
    yield f"{'reply':<56}{'LLMRanker':<20}Haystack LLMRanker"
    totals: dict[str, list[str]] = defaultdict(list)
    for fate, title, reply in replies:
        ours = MockChatGenerator(re.sub("@(\\d)@", r"\1", reply).replace("@KEY@", "ranking"))
        theirs = MockChatGenerator(re.sub("@(\\d)@", r'{"index": \1}', reply).replace("@KEY@", "documents"))
        outcomes = [
            outcome(ranker.run(query="q", documents=documents)["documents"])
            for ranker in (LLMRanker(ours), HaystackRanker(chat_generator=theirs))
        ]
        for name, what in zip(("LLMRanker", "Haystack LLMRanker"), outcomes, strict=True):
            totals[name].append(what)
        yield f"{title + (' (unreadable)' if fate == 'unreadable' else ''):<56}{outcomes[0]:<20}{outcomes[1]}"
    for name, results in totals.items():
        yield f"{name}: " + ", ".join(f"{results.count(what)} {what}" for what in sorted(set(results)))


def outcome(ranked: list[Document]) -> str:
    ids = [document.id for document in ranked]
    if ids == ["4", "2", "5", "1", "3"]:
        return "recovered"
    if ids == ["1", "2", "3", "4", "5"]:
        return "input order"
    if sorted(ids) != ["1", "2", "3", "4", "5"]:
        return "lost or repeated"
    return "misread"


if __name__ == "__main__":
    main()
