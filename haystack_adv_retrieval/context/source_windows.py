"""The hits and leaves of one source, and the windows around the hits."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Literal, NamedTuple

from haystack import Document

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

    def windows(self, rule: WindowRule) -> Iterator[Window]:
        """Widen the hits, and fuse what overlaps or touches."""
        windows = [self._window(hit, rule) for hit in by_score(self.hits)]
        for span in merge(window.span for window in windows):
            inside = [window for window in windows if span.contains(window.span)]
            hits = [hit for window in inside for hit in window.hits]
            yield Window(span, hits, [id_ for window in inside for id_ in window.missing])

    def pieces_of(self, span: Span) -> list[Document]:
        """List the leaves and hits that share text with a span, in source order."""
        return [piece for own, piece in self._pieces if own.overlaps(span)]

    @cached_property
    def _pieces(self) -> list[tuple[Span, Document]]:
        known = {piece.id: piece for piece in (*self.leaves.values(), *self.hits)}
        return sorted(((_span(piece), piece) for piece in known.values()), key=itemgetter(0))

    def _window(self, hit: Document, rule: WindowRule) -> Window:
        def span_of(ordinal: int) -> Span | None:
            leaf = self.leaves.get(ordinal)
            return _span(leaf) if leaf and _may_join(leaf, hit, rule.within) else None

        own, leaves = _span(hit), range(hit.meta[chunks.LEAF_START], hit.meta[chunks.LEAF_END])
        span, unknown = widen(own, leaves, span_of, rule.size)
        if rule.unit == "sentence" and rule.size:
            text = slice_of(self.pieces_of(span), span)
            own_in_text = Span(own.start - span.start, own.end - span.start)
            around = sentences_around(text, own_in_text, rule.size, rule.language)
            span = Span(span.start + around.start, span.start + around.end)
        missing = chunks.leaf_ids(hit.meta, (ordinal for ordinal in unknown if ordinal not in self.leaves))
        return Window(span, [hit], missing)


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
