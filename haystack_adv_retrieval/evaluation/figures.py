"""The figures of the report: which plots an evaluation calls for, and their captions."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

from markupsafe import Markup

from haystack_adv_retrieval.core.chunks import INITIAL_RANK, RANK
from haystack_adv_retrieval.evaluation import plots
from haystack_adv_retrieval.evaluation.metrics import first_relevant
from haystack_adv_retrieval.evaluation.plots import Point
from haystack_adv_retrieval.evaluation.results import Evaluation
from haystack_adv_retrieval.evaluation.strategies import passage


@dataclass(frozen=True)
class Figure:
    """
    A plot with its words.

    :param title: What it shows.
    :param caption: How to read it.
    :param images: SVG elements by subtitle.
    """

    title: str
    caption: str
    images: Mapping[str, Markup]


def figures(evaluation: Evaluation, order: list[str]) -> list[Figure]:
    """
    Draw what an evaluation shows; a plot for which there is no data is left out.

    :param evaluation: The evaluation.
    :param order: The strategies to draw, the baseline first.
    :returns: The figures.
    """
    drawn = [_recall(evaluation, order), _latency(evaluation, order), _contests(evaluation, order)]
    drawn += [_ranks(evaluation, order), _summaries(evaluation)]
    return [figure for figure in drawn if figure.images]


def _recall(evaluation: Evaluation, order: list[str]) -> Figure:
    title = "Recall against context budget"
    caption = "The share of the gold text that is in the first characters of the context. Higher is better."
    if not evaluation.budgets:
        return Figure(title, caption, {})
    curves = {
        name: [
            Point(budget, mean := evaluation.mean(name, f"recall@{budget}"), f"{name}, {budget:,}: {mean:.3f}")
            for budget in sorted(evaluation.budgets)
        ]
        for name in order
    }
    return Figure(title, caption, {"": plots.lines(curves, label=title, x="context (characters)", y="recall")})


def _latency(evaluation: Evaluation, order: list[str]) -> Figure:
    title, metric = "Quality against latency", evaluation.main_metric
    points = {}
    for name in order:
        mean = evaluation.mean(name, metric)
        median, late = (max(1000 * seconds, 0.01) for seconds in evaluation.latency(name)["total"])
        note = f"{mean:.3f}, median {median:,.1f} ms, 95th percentile {late:,.1f} ms"
        points[name] = Point(median, mean, note, *evaluation.interval(name, metric))
    caption = "Up and to the left is better. Whiskers are 95 % confidence intervals."
    image = plots.scatter(points, label=title, x="median time of an answer (ms)", y=metric)
    return Figure(title, caption, {"": image})


def _contests(evaluation: Evaluation, order: list[str]) -> Figure:
    metric, images = evaluation.main_metric, {}
    for name in order[1:]:
        ours, theirs = evaluation.scores(name, metric), evaluation.scores(evaluation.baseline, metric)
        values = [
            Point(number, mine - other, f"{mine - other:+.2f} {question.text}")
            for number, (question, mine, other) in enumerate(zip(evaluation.questions, ours, theirs, strict=True))
            if not isnan(mine - other)
        ]
        result = evaluation.comparison(name, metric)
        words = f"{name}: {result.wins} wins, {result.losses} losses, {result.ties} ties"
        if values:
            images[words] = plots.bars(values, label=words)
    caption = f"One bar per question: the difference in {metric} from {evaluation.baseline}. Click a bar to see why."
    return Figure("Wins and losses", caption, images)


def _ranks(evaluation: Evaluation, order: list[str]) -> Figure:
    images = {}
    for name in order:
        moves = [
            (document.meta[INITIAL_RANK], document.meta.get(RANK, place))
            for question, outcome in zip(evaluation.questions, evaluation.outcomes[name], strict=True)
            for place, document in enumerate(outcome.answer.documents, start=1)
            if INITIAL_RANK in document.meta
            and first_relevant(question.spans, question.sources, [passage(document)]) is not None
        ]
        if moves:
            images[name] = plots.slopes(moves, label=f"Ranks before and after reranking, {name}")
    caption = "Results that show gold text. Rising lines are gold that moved up."
    return Figure("Ranks before and after reranking", caption, images)


def _summaries(evaluation: Evaluation) -> Figure:
    title = "Section length against summary length"
    lengths: dict[str, tuple[int, int]] = {}
    for outcomes in evaluation.outcomes.values():
        for outcome in outcomes:
            lengths |= outcome.trace.summaries
    points = [Point(*pair, f"section {pair[0]:,}, summary {pair[1]:,}") for pair in lengths.values() if min(pair) > 0]
    caption = "Every summary that was met in a search. On the line, a summary is as long as its section."
    image = plots.cloud(points, label=title, x="section (characters)", y="summary (characters)") if points else None
    return Figure(title, caption, {"": image} if image else {})
