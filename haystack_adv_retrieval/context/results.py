"""What retrieval patterns return: passages of text with the hits behind them, best first and within a budget."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from haystack import Document, logging

from haystack_adv_retrieval.context.budgets import LengthUnit, cut, length_of
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.lineage import extent_of
from haystack_adv_retrieval.core.spans import Span

logger = logging.getLogger(__name__)

ScoreAggregation = Literal["max", "sum", "mean"]

_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {"max": max, "sum": sum, "mean": fmean}


@dataclass
class Passage:
    """
    What a pattern wants to return.

    :param chunk: The text: a hit, a stored chunk in its place, or a span fused out of several.
    :param hits: The hits that it stands for.
    :param missing: Ids of chunks that should be in the store and are not.
    """

    chunk: Document
    hits: list[Document]
    missing: list[str] = field(default_factory=list)


def aggregate(scores: Iterable[float | None], how: ScoreAggregation = "max") -> float | None:
    """
    Combine the scores of the hits behind a result.

    :param scores: Scores; None is no score, 0.0 is one.
    :param how: `"max"`, `"sum"` or `"mean"`.
    :returns: The combined score, or None if there is none.
    """
    known = [score for score in scores if score is not None]
    return float(_AGGREGATIONS[how](known)) if known else None


def by_score(documents: Iterable[Document]) -> list[Document]:
    """Sort documents, best score first; equal ones keep their order and those without a score come last."""
    return sorted(documents, key=lambda document: (document.score is None, -(document.score or 0.0)))


def best_of_each(documents: Iterable[Document]) -> list[Document]:
    """Keep each document once, with its best score, in order of first appearance."""
    best: dict[str, Document] = {}
    for document in documents:
        known = best.setdefault(document.id, document)
        if document.score is not None and (known.score is None or document.score > known.score):
            best[document.id] = document
    return list(best.values())


def best_passages(
    passages: Iterable[Passage],
    hits: Sequence[Document],
    *,
    score_aggregation: ScoreAggregation = "max",
    top_k: int | None = None,
    max_length: int | None = None,
    length_unit: LengthUnit = "character",
) -> list[Document]:
    """
    Make results out of passages: best score first, equal ones in the order of the hits, within a budget.

    Passages of the same chunk collapse. Results are taken whole; one that does not fit is left out and a smaller one
    further down may take its place. If already the best one exceeds the budget, it is cut to whole sentences around its
    best hit.

    :param passages: The passages; no hit is behind two of them.
    :param hits: All hits, each once, in the order in which they were retrieved.
    :param score_aggregation: How the scores of the hits behind a result make its score.
    :param top_k: How many results to keep at most; None keeps all.
    :param max_length: Budget over all of them together; None sets none.
    :param length_unit: Unit of the budget.
    :returns: The results: copies with the hits behind each in their metadata, without embeddings.
    """
    place = {hit.id: number for number, hit in enumerate(hits)}
    collapsed: dict[str, Passage] = {}
    for passage in passages:
        known = collapsed.setdefault(passage.chunk.id, Passage(passage.chunk, []))
        known.hits = sorted([*known.hits, *passage.hits], key=lambda hit: place[hit.id])
        known.missing += passage.missing
    in_order = sorted(collapsed.values(), key=lambda passage: place[passage.hits[0].id])
    kept: list[Document] = []
    left = max_length
    for document in by_score(_result(passage, score_aggregation) for passage in in_order):
        if len(kept) == top_k:
            break
        if left is not None:
            length = length_of(document.content or "", length_unit)
            if length > left and kept:
                continue
            if length > left:
                best, *_ = by_score(collapsed[document.id].hits)
                return [cut(document, _focus(document, best), left, length_unit)]
            left -= length
        kept.append(document)
    return kept


def _result(passage: Passage, score_aggregation: ScoreAggregation) -> Document:
    """Copy a passage's chunk and say in its metadata which hits are behind it."""
    meta = copy.deepcopy(passage.chunk.meta)
    if spans := hit_spans(passage.hits):
        meta[chunks.MATCHED_SPANS] = spans
    origins = (origin for hit in passage.hits for origin in hit.meta.get(chunks.EXPANDED_FROM, [hit.id]))
    meta[chunks.EXPANDED_FROM] = list(dict.fromkeys(origins))
    if passage.missing:
        meta[chunks.MISSING] = sorted(set(passage.missing))
    score = aggregate((hit.score for hit in passage.hits), score_aggregation)
    return replace(passage.chunk, meta=meta, score=score, embedding=None, sparse_embedding=None)


def _focus(document: Document, best: Document) -> Span:
    """Find the best hit in a result; a chunk made elsewhere does not know its span, so its text is looked for."""
    matched, text = best.content or "", document.content or ""
    if chunks.MATCHED_SPANS in document.meta or matched not in text:
        return focus_of(document)
    return Span(text.index(matched), text.index(matched) + len(matched))


def hit_spans(hits: Iterable[Document]) -> list[list[Any]]:
    """
    Collect the spans of hits: their `matched_spans` where they have them, else their own.

    :param hits: Retrieved documents, or results of another pattern.
    :returns: `[start, end, score]` of each distinct span with its best score, best first.
    """
    best: dict[tuple[int, int], float | None] = {}
    for hit in hits:
        own = extent_of(hit.meta)
        spans = hit.meta.get(chunks.MATCHED_SPANS) or ([[*own, hit.score]] if own else [])
        for start, end, score in spans:
            best[start, end] = aggregate((score, best.get((start, end))))
    ranked = sorted(best.items(), key=lambda item: (item[1] is None, -(item[1] or 0.0), item[0]))
    return [[start, end, score] for (start, end), score in ranked]


def focus_of(document: Document) -> Span:
    """
    Find the part of a document's content that its best hit matched.

    :param document: A result whose content is the slice of its source that its metadata says.
    :returns: A span in positions of the content; all of it where nothing says what matched.
    """
    whole, own = Span(0, len(document.content or "")), chunks.span_of(document.meta)
    if own and own.length == whole.length and (matched := document.meta.get(chunks.MATCHED_SPANS)):
        start, end = (min(max(position - own.start, 0), whole.end) for position in matched[0][:2])
        return Span(start, end) if start < end else whole
    return whole


def report_problems(problems: Sequence[str], raise_on_failure: bool) -> None:
    """
    Tell, once, that hits could not be expanded as they should have been.

    :param problems: What is wrong, one sentence a problem.
    :param raise_on_failure: Whether to raise instead of logging a warning.
    :raises ValueError: If there is a problem and it is to be raised.
    """
    if problems and raise_on_failure:
        raise ValueError(problems[0])
    if problems:
        logger.warning(
            "Some hits are returned as they are or with less around them ({count} problems). {problem}",
            count=len(problems),
            problem=problems[0],
        )
