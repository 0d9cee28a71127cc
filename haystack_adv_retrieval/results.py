"""What retrieval patterns return: documents with scores, the hits behind them, and a common budget."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal, get_args

from haystack import Document

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.excerpts import excerpt
from haystack_adv_retrieval.core.rulers import CharacterRuler, Ruler, UnitRuler, token_starts, word_starts
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.models import load_tokenizer

LengthUnit = Literal["character", "word", "token"]
ScoreAggregation = Literal["max", "sum", "mean"]

_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {"max": max, "sum": sum, "mean": fmean}
# What describes one stored chunk and not the span that it becomes a part of.
_CHUNK_ONLY = frozenset(
    {chunks.UNIT, chunks.LEVEL, chunks.SPLIT_ID, chunks.PARENT_ID, chunks.PARENT_START, chunks.PARENT_END}
)


def check_choice(name: str, value: str, allowed: Any) -> None:
    """
    Refuse a value that is none of a Literal's.

    :param name: The parameter's name, for the message.
    :param value: Its value.
    :param allowed: The Literal.
    :raises ValueError: If the value is not allowed.
    """
    if value not in get_args(allowed):
        raise ValueError(f"{name} must be one of {get_args(allowed)}, got {value!r}")


def check_at_least(minimum: int, **parameters: int | None) -> None:
    """
    Refuse whole numbers that are too small; None means "not set".

    :param minimum: The smallest allowed value.
    :param parameters: Values by the names of their parameters.
    :raises ValueError: If a value is below the minimum, or no whole number.
    """
    for name, value in parameters.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < minimum):
            raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")


def ruler_of(text: str, unit: LengthUnit) -> Ruler:
    """
    Make a ruler for a text.

    :param text: The text.
    :param unit: What it counts; tokens are those of the default embedding model.
    :returns: The ruler.
    """
    if unit == "character":
        return CharacterRuler(text)
    starts = word_starts(text) if unit == "word" else token_starts(text, [Span(0, len(text))], load_tokenizer())
    return UnitRuler(starts, len(text))


def length_of(text: str, unit: LengthUnit) -> int:
    """Measure a text without the white space around it."""
    return ruler_of(text, unit).count(0, len(text))


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


def hit_spans(hits: Iterable[Document]) -> list[list[Any]]:
    """
    Collect the spans of hits: their `matched_spans` where they have them, else their own.

    :param hits: Retrieved documents, or results of another pattern.
    :returns: `[start, end, score]` of each distinct span with its best score, best first.
    """
    best: dict[tuple[int, int], float | None] = {}
    for hit in hits:
        own = chunks.span_of(hit.meta)
        spans = hit.meta.get(chunks.MATCHED_SPANS) or ([[*own, hit.score]] if own else [])
        for start, end, score in spans:
            best[start, end] = aggregate((score, best.get((start, end))))
    ranked = sorted(best.items(), key=lambda item: (item[1] is None, -(item[1] or 0.0), item[0]))
    return [[start, end, score] for (start, end), score in ranked]


def result(document: Document, hits: Sequence[Document], score: float | None, missing: Sequence[str] = ()) -> Document:
    """
    Make a result out of a document: a copy that knows the hits behind it.

    :param document: The chunk to return; it is not changed.
    :param hits: The hits that it stands for.
    :param score: Its score.
    :param missing: Ids of chunks that should be in the store and are not.
    :returns: The result, without an embedding.
    """
    meta = copy.deepcopy(document.meta)
    if spans := hit_spans(hits):
        meta[chunks.MATCHED_SPANS] = spans
    meta[chunks.EXPANDED_FROM] = list(
        dict.fromkeys(origin for hit in hits for origin in hit.meta.get(chunks.EXPANDED_FROM, [hit.id]))
    )
    if missing:
        meta[chunks.MISSING] = list(missing)
    return replace(document, meta=meta, score=score, embedding=None)


def span_result(
    pieces: Sequence[Document],
    hits: Sequence[Document],
    score: float | None,
    within: Span | None = None,
    missing: Sequence[str] = (),
) -> Document:
    """
    Make one result out of consecutive chunks of a source.

    :param pieces: Chunks that touch or overlap, in source order.
    :param hits: The hits among or behind them, the best one first; it lends its metadata.
    :param score: The score of the result.
    :param within: The part of the pieces' common span to keep; None keeps all of it.
    :param missing: Ids of chunks that should be in the store and are not.
    :returns: A document with an id of its own, whose content is the exact slice of the source.
    """
    first = pieces[0].meta
    span = within or Span(first[chunks.START], max(piece.meta[chunks.END] for piece in pieces))
    meta = {key: value for key, value in hits[0].meta.items() if key not in _CHUNK_ONLY}
    if len({piece.meta.get(chunks.PARENT_ID) for piece in pieces}) == 1:  # still inside of one parent
        keys = (chunks.PARENT_ID, chunks.PARENT_START, chunks.PARENT_END)
        meta |= {key: first[key] for key in keys if key in first}
    meta |= {
        chunks.START: span.start,
        chunks.END: span.end,
        chunks.PAGE: first[chunks.PAGE],
        chunks.LEAF_START: min(piece.meta[chunks.LEAF_START] for piece in pieces),
        chunks.LEAF_END: max(piece.meta[chunks.LEAF_END] for piece in pieces),
        chunks.PART_IDS: [piece.id for piece in pieces],
    }
    address = chunks.digest(meta[chunks.SOURCE_ID], meta[chunks.SOURCE_VERSION], "span", span.start, span.end)
    return result(Document(id=address, content=slice_of(pieces, span), meta=meta), hits, score, missing)


def slice_of(pieces: Iterable[Document], span: Span) -> str:
    """
    Cut a span of a source out of the chunks that cover it.

    :param pieces: Chunks in source order; they may overlap.
    :param span: The span in the source.
    :returns: Its text.
    """
    parts, position = [], span.start
    for piece in pieces:
        start, end = piece.meta[chunks.START], min(piece.meta[chunks.END], span.end)
        if end > position:
            parts.append((piece.content or "")[position - start : end - start])
            position = end
    return "".join(parts)


def limit(
    documents: Iterable[Document], top_k: int | None, max_length: int | None, length_unit: LengthUnit
) -> list[Document]:
    """
    Keep the best results within a budget.

    Results are taken whole, best first; one that does not fit is left out and a smaller one further down may take its
    place. If already the first one exceeds the budget, it is cut to whole sentences around its best hit.

    :param documents: Results, best first.
    :param top_k: How many to keep at most; None keeps all.
    :param max_length: Budget over all of them together; None sets none.
    :param length_unit: Unit of the budget.
    :returns: The kept results in the given order.
    """
    kept: list[Document] = []
    left = max_length
    for document in documents:
        if top_k is not None and len(kept) == top_k:
            break
        if left is not None:
            length = length_of(document.content or "", length_unit)
            if length > left:
                if kept or not length:
                    continue
                document = _cut(document, left, length_unit)  # noqa: PLW2901
                length = left
            left -= length
        kept.append(document)
    return kept


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


def _cut(document: Document, max_length: int, length_unit: LengthUnit) -> Document:
    text, own = document.content or "", chunks.span_of(document.meta)
    focus = focus_of(document)
    span = excerpt(text, focus, max_length, ruler_of(text, length_unit))
    meta = copy.deepcopy(document.meta)
    if own:
        meta |= {chunks.START: own.start + span.start, chunks.END: own.start + span.end}
    return replace(document, content=span.text(text), meta=meta)
