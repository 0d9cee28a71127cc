"""
Metrics on what the model gets to read: does the context hold the gold text, how much else, and how early.

Text is compared by characters of the sources, so strategies whose results differ in size are measured with one rule.
A context is cut either after `top_k` results or at a budget of characters; only the latter is fair between small and
large results.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from haystack_adv_retrieval.core.spans import Span, clip, covered, merge


@dataclass(frozen=True)
class Passage:
    """
    What one result puts into the context.

    :param source: Id of the source, or None if it is not known.
    :param spans: The parts of the source that are shown, in the order shown. Empty if the text is not verbatim, as
        after a summary: such a passage fills the context, but no gold text is found in it.
    :param length: The number of characters read.
    """

    source: str | None
    spans: tuple[Span, ...]
    length: int


class Scores(NamedTuple):
    """
    How well a context matches the gold.

    :param recall: The share of the gold that is in the context.
    :param precision: The share of the context that is gold. Text that is repeated is read again, so it counts again.
    :param iou: Intersection over union, where the union too counts repeated text again.
    """

    recall: float
    precision: float
    iou: float


def cut(passages: Iterable[Passage], budget: int) -> list[Passage]:
    """
    Keep the beginning of a context.

    :param passages: Results in their own order.
    :param budget: The number of characters to keep; the passage that crosses it is shortened.
    :returns: The passages, or the parts of them, that are within the budget.
    """
    kept: list[Passage] = []
    for passage in passages:
        if budget <= 0:
            break
        room = length = min(budget, passage.length)
        budget -= length
        spans = []
        for span in passage.spans:
            if room > 0:
                spans.append(Span(span.start, min(span.end, span.start + room)))
                room -= span.length
        kept.append(Passage(passage.source, tuple(spans), length))
    return kept


def span_scores(gold: Mapping[str, Sequence[Span]], passages: Iterable[Passage]) -> Scores:
    """
    Compare a context with gold text (the token-wise metrics of Chroma's "Evaluating Chunking Strategies", 2024).

    :param gold: The gold spans of each source.
    :param passages: The context.
    :returns: Recall, precision and IoU in characters.
    """
    read = 0
    shown: dict[str, list[Span]] = {}
    for passage in passages:
        read += passage.length
        if passage.source is not None:
            shown.setdefault(passage.source, []).extend(passage.spans)
    total = sum(span.length for spans in gold.values() for span in merge(spans))
    found = sum(covered(shown.get(source, ()), within) for source, spans in gold.items() for within in merge(spans))
    return _scores(found, total, read)


def source_scores(gold: Collection[str], passages: Iterable[Passage]) -> Scores:
    """
    Compare a context with gold sources, of which any part will do.

    :param gold: Ids of the gold sources.
    :param passages: The context.
    :returns: Recall, precision and IoU in sources.
    """
    shown = {passage.source for passage in passages}
    return _scores(len(shown & set(gold)), len(set(gold)), len(shown))


def first_relevant(
    gold: Mapping[str, Sequence[Span]], sources: Collection[str], passages: Iterable[Passage]
) -> int | None:
    """
    Find the first result that shows any gold.

    :param gold: The gold spans of each source; empty if only the sources are known.
    :param sources: Ids of the gold sources.
    :param passages: Results in their own order.
    :returns: The rank, from 1, or None if there is no such result.
    """
    for rank, passage in enumerate(passages, start=1):
        if passage.source is None or passage.source not in sources:
            continue
        if not gold or any(clip(passage.spans, span) for span in gold[passage.source]):
            return rank
    return None


def reciprocal_rank(rank: int | None) -> float:
    """
    Compute the reciprocal rank; its mean over questions is the MRR.

    :param rank: The rank of the first relevant result, from 1, or None.
    :returns: A number in [0, 1].
    """
    return 0.0 if rank is None else 1 / rank


def ndcg_of_first(rank: int | None) -> float:
    """
    Compute the nDCG of a ranking in which the first relevant result is the only one that counts.

    :param rank: The rank of the first relevant result, from 1, or None.
    :returns: A number in [0, 1].
    """
    return 0.0 if rank is None else 1 / math.log2(1 + rank)


def _scores(found: int, gold: int, read: int) -> Scores:
    union = gold + read - found
    return Scores(found / gold if gold else 0.0, found / read if read else 0.0, found / union if union else 0.0)
