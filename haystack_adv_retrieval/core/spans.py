"""Spans of a text, and the few verbs that every retrieval pattern is made of."""

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """
    A half-open range `[start, end)` of a text, in code points as Python counts them.

    :param start: Index of the first character.
    :param end: Index after the last character.
    """

    start: int
    end: int

    @property
    def length(self) -> int:
        """The number of characters."""
        return self.end - self.start

    def contains(self, other: "Span") -> bool:
        """Tell whether `other` lies inside this span (equal counts as inside)."""
        return self.start <= other.start and other.end <= self.end

    def overlaps(self, other: "Span") -> bool:
        """Tell whether the two share at least one character."""
        return self.start < other.end and other.start < self.end

    def text(self, source: str) -> str:
        """Cut the span out of its source."""
        return source[self.start : self.end]


def merge(spans: Iterable[Span], gap: int = 0) -> list[Span]:
    """
    Fuse spans that overlap, touch or lie at most `gap` characters apart.

    :param spans: Spans in any order.
    :param gap: The largest distance that is bridged, in characters.
    :returns: Disjoint spans in ascending order.
    """
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end + gap:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(Span(*span))
    return merged


def clip(spans: Iterable[Span], within: Span) -> list[Span]:
    """
    Keep what of each span lies inside `within`; spans without any such part are left out.

    :param spans: Spans in any order.
    :param within: The span that limits them.
    :returns: The clipped spans, in the given order.
    """
    clipped = (Span(max(span.start, within.start), min(span.end, within.end)) for span in spans)
    return [span for span in clipped if span.length > 0]


def covered(spans: Iterable[Span], within: Span) -> int:
    """
    Count the characters of `within` that at least one of the spans covers.

    :param spans: Spans in any order; they may repeat and overlap.
    :param within: The span to be covered.
    :returns: A number from 0 to `within.length`.
    """
    return sum(span.length for span in merge(clip(spans, within)))
