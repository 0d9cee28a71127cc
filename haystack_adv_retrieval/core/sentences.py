"""Sentence spans of a text, offline and without losing a character."""

import re
from collections.abc import Iterable

import sentencex

from haystack_adv_retrieval.core.graphemes import is_grapheme_boundary
from haystack_adv_retrieval.core.spans import Span

_PARAGRAPH_END = re.compile(r"\n(?:[^\S\n]*\n)+|\f")
_SURROGATE = re.compile("[\ud800-\udfff]")

# Nobody wraps lines at more than this, so in a paragraph with a longer line every newline ends a paragraph.
WIDEST_WRAP = 160


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
        sentence
        for paragraph in paragraph_spans(text)
        for sentence in tile(text, sentence_cuts(text, paragraph, language), paragraph)
    ]


def paragraph_spans(text: str) -> list[Span]:
    """
    Split a text at blank lines and form feeds, and at every newline where lines are too long to be wrapped ones.

    :param text: Any text.
    :returns: Disjoint, non-blank spans in ascending order, whose concatenation is the text; none for a blank text.
    """
    whole = Span(0, len(text))
    blocks = tile(text, (match.end() for match in _PARAGRAPH_END.finditer(text)), whole)
    return [line for block in blocks for line in unwrapped_lines(text, block)]


def unwrapped_lines(text: str, block: Span) -> list[Span]:
    """Split a block into its lines if they are too long to be wrapped ones; else it stays whole."""
    starts: list[int] = []
    longest, start = 0, block.start
    while (newline := text.find("\n", start, block.end)) >= 0:
        longest = max(longest, newline - start)
        start = newline + 1
        starts.append(start)
    is_wrapped = max(longest, block.end - start) <= WIDEST_WRAP
    return [block] if is_wrapped or not starts else tile(text, starts, block)


def sentence_cuts(text: str, paragraph: Span, language: str = "en") -> list[int]:
    """Find where sentences start inside a paragraph, in positions of the text; its own start is not among them."""
    sentences = sentencex.get_sentence_boundaries(language, without_surrogates(paragraph.text(text)))
    return [paragraph.start + sentence["start_index"] for sentence in sentences[1:]]


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
    pieces: list[Span] = []
    start = within.start
    inside = sorted({cut for cut in cuts if within.start < cut < within.end and is_grapheme_boundary(text, cut)})
    for cut in [*inside, within.end]:
        if start < cut and not text[start:cut].isspace():
            pieces.append(Span(start, cut))
        elif pieces:
            pieces[-1] = Span(pieces[-1].start, cut)
        else:
            continue  # white space at the very start belongs to the first piece
        start = cut
    return pieces
