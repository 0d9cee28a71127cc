"""One self-contained HTML file: the verdict, the tables and plots behind it, and every retrieved context to look at."""

from collections.abc import Iterable, Mapping
from itertools import takewhile
from math import isnan
from pathlib import Path
from typing import Any

from haystack import Document
from jinja2 import Environment, PackageLoader

from haystack_adv_retrieval.core.chunks import INITIAL_RANK, KEPT_SPANS, MATCHED_SPANS, span_of
from haystack_adv_retrieval.core.spans import Span, clip, merge
from haystack_adv_retrieval.evaluation.figures import figures
from haystack_adv_retrieval.evaluation.judge import TRIAD
from haystack_adv_retrieval.evaluation.questions import Question
from haystack_adv_retrieval.evaluation.results import Evaluation
from haystack_adv_retrieval.evaluation.strategies import passage

SURROUNDINGS = 160  # characters of a source shown around gold that was not retrieved


def write_report(
    path: str | Path, evaluation: Evaluation, sources: Mapping[str, str], *, title: str = "Retrieval evaluation"
) -> None:
    """
    Write an evaluation as one HTML file that needs no network.

    :param path: The file; it is overwritten.
    :param evaluation: The evaluation.
    :param sources: The text of every source by its id, from which the contexts are shown.
    :param title: The page's title.
    """
    page = render_report(evaluation, sources, title=title)
    # Lone surrogates, which texts may hold, are no UTF-8.
    Path(path).write_text(page, encoding="utf-8", errors="xmlcharrefreplace")


def render_report(evaluation: Evaluation, sources: Mapping[str, str], *, title: str = "Retrieval evaluation") -> str:
    """
    Render an evaluation as one HTML page.

    :param evaluation: The evaluation.
    :param sources: The text of every source by its id.
    :param title: The page's title.
    :returns: The page.
    """
    environment = Environment(loader=PackageLoader(__package__), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = lambda value: "–" if isnan(value) else f"{value:.3f}"
    environment.filters["ms"] = lambda seconds: f"{seconds * 1000:,.0f}" if seconds >= 0.01 else f"{seconds * 1000:.1f}"
    order = [evaluation.baseline, *(name for name in evaluation.ranking() if name != evaluation.baseline)]
    return environment.get_template("report.html").render(
        title=title,
        evaluation=evaluation,
        order=order,
        facts=evaluation.to_dict()["strategies"],
        comparisons={name: evaluation.comparison(name, evaluation.main_metric) for name in order},
        figures=figures(evaluation, order),
        data=_data(evaluation, sources, order),
    )


def _data(evaluation: Evaluation, sources: Mapping[str, str], order: list[str]) -> dict[str, Any]:
    """Collect what the script of the page draws contexts from: spans, and the parts of the sources they lie in."""
    shown: dict[str, list[Span]] = {}
    questions = []
    budget = evaluation.main_metric.partition("@")[2]
    metrics = [evaluation.main_metric, f"precision@{budget}", "mrr", *TRIAD]
    for number, question in enumerate(evaluation.questions):
        answers = {}
        for name in order:
            outcome = evaluation.outcomes[name][number]
            results = [_result(document, sources) for document in outcome.answer.documents]
            for result in results:
                if "span" in result:
                    shown.setdefault(result["source"], []).append(Span(*result["span"]))
            answers[name] = _filled(
                results=results,
                reply=outcome.answer.reply,
                error=outcome.error,
                scores=[[metric, outcome.scores[metric]] for metric in metrics if metric in outcome.scores],
            )
        for source, spans in question.spans.items():
            around = (Span(max(0, span.start - SURROUNDINGS), span.end + SURROUNDINGS) for span in spans)
            shown.setdefault(source, []).extend(around)
        questions.append(_asked(question) | {"answers": answers})
    texts = {
        source: [[span.start, span.text(sources[source])] for span in merge(spans)]
        for source, spans in shown.items()
        if source in sources
    }
    return {
        "questions": questions,
        "texts": texts,
        "strategies": order,
        "surroundings": SURROUNDINGS,
        "folder": _folder(sources),
    }


def _folder(sources: Iterable[str]) -> str:
    """Find the folder that all sources are in, which is not worth repeating in front of every name."""
    columns = zip(*(source.split("/")[:-1] for source in sources), strict=False)
    return "".join(f"{column[0]}/" for column in takewhile(lambda column: len(set(column)) == 1, columns))


def _asked(question: Question) -> dict[str, Any]:
    return _filled(
        text=question.text,
        answer=question.answer,
        group=question.group,
        drafted=question.drafted or None,
        sources=sorted(question.sources),
        gold={source: [list(span) for span in spans] for source, spans in question.spans.items()},
    )


def _result(document: Document, sources: Mapping[str, str]) -> dict[str, Any]:
    shown = passage(document)
    # What compression left out is shown too, so the ends are those of the document before it.
    spans = [*shown.spans, *filter(None, [span_of(document.meta)])] if shown.spans else []
    spans = clip(spans, Span(0, len(sources.get(shown.source or "", ""))))
    located = bool(spans)
    return _filled(
        source=shown.source,
        span=[min(span.start for span in spans), max(span.end for span in spans)] if located else None,
        kept=[list(span) for span in shown.spans] if located and KEPT_SPANS in document.meta else None,
        matched=[[int(start), int(end)] for start, end, *_ in document.meta.get(MATCHED_SPANS) or []],
        text=None if located else document.content or "",
        length=shown.length,
        score=document.score,
        initial_rank=document.meta.get(INITIAL_RANK),
    )


def _filled(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
