"""Sentence spans of a text, offline and without losing a character."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise

import sentencex

from haystack_adv_retrieval.core.graphemes import is_grapheme_boundary
from haystack_adv_retrieval.core.spans import Span

_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")  # possessive: it keeps no state for each of many lines
_NONBLANK = re.compile(r"\S")
_SURROGATE = re.compile("[\ud800-\udfff]")
# White space of more than one byte, at which sentencex fails where an initial is before it ("plan B\u00a0.").
_WIDE_SPACE_BEFORE_STOP = re.compile(r"[^\S\x00-\x7f](?=\.)")

# Nobody wraps lines at more than this, so in a paragraph with a longer line every newline ends a paragraph.
WIDEST_WRAP = 160
# sentencex takes quadratic time where punctuation is dense, so it is shown a long paragraph in windows of so many
# characters, and not believed at the end of one, where it does not see what follows.
_WINDOW, _MARGIN = 2048, 256


def sentence_spans(text: str, language: str = "en") -> list[Span]:
    """
    Split a text into sentences that tile it: each span holds a sentence and the white space behind it.

    Paragraphs are found first, so text without full stops never becomes one huge sentence; inside them the rules of
    Wikimedia's [sentencex](https://github.com/wikimedia/sentencex) for the language decide.

    :param text: Any text.
    :param language: ISO 639 code; a language without rules of its own uses those of a related one.
    :returns: Disjoint, non-blank spans in ascending order, whose concatenation is the text; none for a blank text.
    """
    return [
        Span(*ends)
        for paragraph in paragraph_spans(text)
        for ends in pairwise([paragraph.start, *sentence_cuts(text, paragraph, language), paragraph.end])
    ]


def paragraph_spans(text: str) -> list[Span]:
    """
    Split a text at blank lines and form feeds, and at every newline where lines are too long to be wrapped ones.

    :param text: Any text.
    :returns: Disjoint, non-blank spans in ascending order, whose concatenation is the text; none for a blank text.
    """
    ends = [match.end() for match in _BLANK_LINES.finditer(text)]
    ends += [match.end() for match in re.finditer("\f", text)]
    return [line for block in tile(text, ends, Span(0, len(text))) for line in unwrapped_lines(text, block)]


def unwrapped_lines(text: str, block: Span) -> list[Span]:
    """Split a block into its lines if they are too long to be wrapped ones; else it stays whole."""
    lines = block.text(text).split("\n")
    if len(lines) == 1 or max(map(len, lines)) <= WIDEST_WRAP:
        return [block]
    return tile(text, accumulate((len(line) + 1 for line in lines), initial=block.start), block)


def sentence_cuts(text: str, paragraph: Span, language: str = "en") -> list[int]:
    """
    Find where sentences start inside a paragraph; its own start is not among them.

    :param text: The text that holds the paragraph.
    :param paragraph: A span of it.
    :param language: ISO 639 code.
    :returns: Positions in the text, ascending. The pieces between them are not blank and tear no grapheme cluster.
    """
    cuts: list[int] = []
    done = first_nonblank(text, paragraph)
    for start in _sentence_starts(text, paragraph, language):
        if start <= done:
            continue
        # White space belongs to the sentence before it.
        done = first_nonblank(text, Span(start, paragraph.end)) if text[start].isspace() else start
        if done < paragraph.end and is_grapheme_boundary(text, done, paragraph.start):
            cuts.append(done)
    return cuts


def _sentence_starts(text: str, paragraph: Span, language: str) -> list[int]:
    found: list[int] = []
    start, stop = paragraph
    while start < stop:
        end = min(start + _WINDOW, stop)
        sentences = sentencex.segment(language, _harmless(text[start:end]))
        starts = [*accumulate(map(len, sentences[:-1]), initial=start)][1:]
        if end < stop:
            end -= _MARGIN
            starts = starts[: bisect_right(starts, end)]
        found += starts
        start = end if not starts or end == stop else starts[-1]
    return found


def _harmless(text: str) -> str:
    """Replace what sentencex fails at, keeping every position."""
    return text if text.isascii() else _WIDE_SPACE_BEFORE_STOP.sub(" ", without_surrogates(text))


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which libraries outside of Python refuse, by a stand-in that keeps every position."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def tile(text: str, cuts: Iterable[int], within: Span) -> list[Span]:
    """
    Cut a span into pieces, none of them blank, whose concatenation is its text.

    A cut that would leave a blank piece or tear a grapheme cluster is not made.

    :param text: The text that everything is a position of.
    :param cuts: Positions in any order; those outside of the span are ignored.
    :param within: The span to cut.
    :returns: The pieces in ascending order; none if the span is blank.
    """
    visible = first_nonblank(text, within)
    if visible == within.end:
        return []
    # White space at the very start belongs to the first piece, all other to the piece before it.
    inside = sorted({cut for cut in cuts if visible < cut < within.end})
    borders = [cut for cut in inside if is_grapheme_boundary(text, cut, within.start)]
    pieces: list[Span] = []
    for start, end in pairwise([within.start, *borders, within.end]):
        if text[start:end].isspace():
            pieces[-1] = Span(pieces[-1].start, end)
        else:
            pieces.append(Span(start, end))
    return pieces


def first_nonblank(text: str, within: Span) -> int:
    """Find the first character of a span that is not white space; the span's end if there is none."""
    match = _NONBLANK.search(text, within.start, within.end)
    return match.start() if match else within.end
