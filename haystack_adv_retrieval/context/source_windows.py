"""The hits and leaves of one source, and the windows around the hits."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
from operator import itemgetter
from typing import Literal, NamedTuple

from haystack import Document

from haystack_adv_retrieval.context.budgets import LengthUnit, length_of
from haystack_adv_retrieval.context.results import by_score
from haystack_adv_retrieval.context.slices import slice_of
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span, merge
from haystack_adv_retrieval.core.windows import sentences_around, widen

WindowUnit = Literal["leaf", "sentence"]
Within = Literal["source", "parent", "page"]


class WindowRule(NamedTuple):
    """
    How windows are made.

    :param size: How many units to add on each side.
    :param unit: What is counted.
    :param within: What a window must not leave.
    :param language: ISO 639 code of the texts' language, for counting sentences.
    """

    size: int
    unit: WindowUnit
    within: Within
    language: str


class Window(NamedTuple):
    """
    A part of a source.

    :param span: The part.
    :param hits: The hits in it, the best one first.
    :param missing: Ids of neighbours that the store does not hold.
    """

    span: Span
    hits: list[Document]
    missing: list[str]


@dataclass
class Source:
    """
    What is known of one source; complete before windows are made.

    :param hits: The hits in it.
    :param leaves: Leaves by their ordinals, hits among them.
    """

    hits: list[Document] = field(default_factory=list)
    leaves: dict[int, Document] = field(default_factory=dict)

    def windows(self, rule: WindowRule) -> list[Window]:
        """Widen each hit, the best one first."""
        return [self._window(hit, rule) for hit in by_score(self.hits)]

    def text(self, span: Span) -> str:
        """Cut a span out of the source."""
        return slice_of(self.pieces_of(span), span)

    def pieces_of(self, span: Span) -> list[Document]:
        """List the leaves and hits that share text with a span, in source order."""
        first = bisect_right(self._ends, span.start)
        last = bisect_left(self._pieces, span.end, key=lambda piece: piece[0].start)
        return [piece for own, piece in self._pieces[first:last] if own.overlaps(span)]

    @cached_property
    def _pieces(self) -> list[tuple[Span, Document]]:
        known = {piece.id: piece for piece in (*self.leaves.values(), *self.hits)}
        return sorted(((_span(piece), piece) for piece in known.values()), key=itemgetter(0))

    @cached_property
    def _ends(self) -> list[int]:
        """Where each piece ends, or one before it that goes on for longer."""
        return list(accumulate((own.end for own, _ in self._pieces), max))

    def _window(self, hit: Document, rule: WindowRule) -> Window:
        def span_of(ordinal: int) -> Span | None:
            leaf = self.leaves.get(ordinal)
            return _span(leaf) if leaf and _may_join(leaf, hit, rule.within) else None

        own, leaves = _span(hit), range(hit.meta[chunks.LEAF_START], hit.meta[chunks.LEAF_END])
        span, unknown = widen(own, leaves, span_of, rule.size)
        if rule.unit == "sentence" and rule.size:
            own_in_text = Span(own.start - span.start, own.end - span.start)
            around = sentences_around(self.text(span), own_in_text, rule.size, rule.language)
            span = Span(span.start + around.start, span.start + around.end)
        missing = chunks.leaf_ids(hit.meta, (ordinal for ordinal in unknown if ordinal not in self.leaves))
        return Window(span, [hit], missing)


def fused_windows(
    sources: Sequence[Source], hits: Iterable[Document], rule: WindowRule, max_length: int | None, unit: LengthUnit
) -> list[list[Window]]:
    """
    Make the windows of the hits of several sources, and fuse those that overlap or touch.

    Under a budget hits are taken best first, and one whose window does not fit any more comes alone, or not at all. So
    the budget goes to the best hits, and not to the longest chain of hits that touch. The best one is always taken.

    :param sources: The sources.
    :param hits: All hits, in the order in which they were retrieved.
    :param rule: How windows are made.
    :param max_length: The budget over all windows together; None sets none.
    :param unit: Unit of the budget.
    :returns: The windows of each source, in the order of its text.
    """
    made = [source.windows(rule) for source in sources]
    if max_length is None:
        return [_fuse(windows) for windows in made]
    window_of = {window.hits[0].id: (number, window) for number, windows in enumerate(made) for window in windows}
    taken: list[list[Window]] = [[] for _ in sources]
    left = max_length

    @cache
    def measure(number: int, span: Span) -> int:
        return length_of(sources[number].text(span), unit)

    for number, window in (window_of[hit.id] for hit in by_score(hits) if hit.id in window_of):
        for part in (window, Window(_span(window.hits[0]), window.hits, [])):
            near = _near(taken[number], part.span)
            before = taken[number][near]
            after = _fuse([*before, part])
            more = sum(measure(number, each.span) for each in after)
            more -= sum(measure(number, each.span) for each in before)
            if more <= left or not any(taken):
                taken[number][near] = after
                left -= more
                break
    return taken


def _near(windows: Sequence[Window], span: Span) -> slice:
    """Find which of some windows, fused and in the order of the text, overlap or touch a span."""
    first = bisect_left(windows, span.start, key=lambda window: window.span.end)
    return slice(first, bisect_right(windows, span.end, key=lambda window: window.span.start))


def _fuse(windows: Sequence[Window]) -> list[Window]:
    fused = [Window(span, [], []) for span in merge(window.span for window in windows)]
    for window in windows:
        place = bisect_right(fused, window.span.start, key=lambda whole: whole.span.start) - 1
        fused[place].hits.extend(window.hits)
        fused[place].missing.extend(window.missing)
    return fused


def _span(chunk: Document) -> Span:
    return Span(chunk.meta[chunks.START], chunk.meta[chunks.END])


def _may_join(leaf: Document, hit: Document, within: Within) -> bool:
    """Tell whether a leaf lies within what limits the window of a hit."""
    if within == "page":
        return leaf.meta.get(chunks.PAGE) == hit.meta.get(chunks.PAGE)
    if within == "parent":
        if parent := chunks.parent_span_of(hit.meta):
            return parent.contains(_span(leaf))
        return hit.meta.get(chunks.PARENT_ID) in (None, leaf.meta.get(chunks.PARENT_ID))
    return True
