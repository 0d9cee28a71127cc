"""A text as a tree of spans: blocks of several sizes, each cut where the text itself has a break."""

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from haystack_adv_retrieval.core.graphemes import LONGEST_CLUSTER, end_of_cluster, is_grapheme_boundary
from haystack_adv_retrieval.core.rulers import Ruler
from haystack_adv_retrieval.core.sentences import first_nonblank, sentence_cuts, tile
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.core.structure import ATOMIC, Block

# Where a unit that is too long may be cut: a table or code between lines, a sentence at a clause, else at a word.
_LINE = re.compile(r"\n(?=[^\S\n]*\S)")
_CLAUSE = re.compile(r"[,;:)\u2013\u2014\u3001\uff0c\uff1b\uff1a](?:\s+|(?<=[\u2014\u3001\uff0c\uff1b\uff1a]))(?=\S)")
_WORD = re.compile(r"\s(?=\S)")

# A block is not cut off below this share of its size, and a section below it joins its neighbour.
SMALLEST_SHARE = 4

# Start and end. There are many: unlike named tuples, plain ones are made fast and soon ignored by garbage collection.
Piece = tuple[int, int]


class Level(NamedTuple):
    """The pieces of a level, and the ordinals where the children of each piece of the level above begin and end."""

    pieces: list[Piece]
    borders: list[int]


class Hierarchy:
    """
    Cuts one text into levels of nested spans.

    :param text: The text.
    :param blocks: Its blocks, which tile it.
    :param ruler: Measures spans of the text.
    :param language: Language of its sentences.
    """

    def __init__(self, text: str, blocks: Sequence[Block], ruler: Ruler, language: str = "en") -> None:
        self._text = text
        self._blocks = blocks
        self._ruler = ruler
        self._language = language
        self._starts = [block.span.start for block in blocks]
        self._paragraphs = [  # a heading stays with what follows it, and an item with its list
            block.span.start
            for index, block in enumerate(blocks)
            if block.kind != "item" and (index == 0 or blocks[index - 1].kind != "heading")
        ]
        self._sections = [  # headings that follow something else than a heading
            block.span.start
            for previous, block in itertools.pairwise(blocks)
            if block.kind == "heading" and previous.kind != "heading"
        ]

    def levels(self, block_sizes: Sequence[int], *, sentence_leaves: bool, overlap: int = 0) -> list[Level]:
        """
        Cut the whole text, level by level.

        :param block_sizes: The largest size of each level, coarse to fine.
        :param sentence_leaves: Make every sentence a leaf of its own instead of filling leaves up to their size.
        :param overlap: How many sentences a leaf repeats of the one before it.
        :returns: The levels; above the first one is the whole text.
        """
        levels: list[Level] = []
        parents: list[Piece] = [(0, len(self._text))] if self._blocks else []
        for level, size in enumerate(block_sizes, start=1):
            is_finest = level == len(block_sizes)
            pieces: list[Piece] = []
            borders = [0]
            for start, end in parents:
                if is_finest and sentence_leaves:
                    pieces += self.sentences(start, end, size)
                else:
                    pieces += self._fill(start, end, size, overlap if is_finest else 0)
                borders.append(len(pieces))
            levels.append(Level(pieces, borders))
            parents = pieces
        return levels

    def sentences(self, start: int, end: int, size: int) -> list[Piece]:
        """
        Cut a span into its sentences; one that is too long is divided, and punctuation alone joins its neighbour.

        :param start: Start of the span in the text.
        :param end: Its end.
        :param size: The largest size.
        :returns: The pieces, which tile the span.
        """
        sentences = [*itertools.pairwise([start, *self._cuts(start, end), end])]
        return self._cut_each(self._join(sentences, self._says_nothing, size), size)

    def _fill(self, start: int, end: int, size: int, overlap: int = 0) -> list[Piece]:
        """Fill blocks with whole sections, or cut a section that is too large; small neighbours share a block."""
        within = self._sections[bisect_right(self._sections, start) : bisect_left(self._sections, end)]
        if not within:
            return self._cut(start, end, size, overlap)
        sections = tile(self._text, within, Span(start, end))
        joined = self._join(sections, lambda *piece: self._ruler.count(*piece) * SMALLEST_SHARE < size, size)
        return self._cut_each(joined, size, overlap)

    def _join(self, pieces: Sequence[Piece], is_crumb: Callable[[int, int], bool], size: int) -> list[Piece]:
        """Join a crumb with its neighbour, the following one if there is one, as long as both fit."""
        joined: list[Piece] = []
        for piece in pieces:
            if joined and (is_crumb(*joined[-1]) or (piece is pieces[-1] and is_crumb(*piece))):
                both = (joined[-1][0], piece[1])
                if self._ruler.count(*both) <= size:
                    joined[-1] = both
                    continue
            joined.append(piece)
        return joined

    def _says_nothing(self, start: int, end: int) -> bool:
        return not any(map(str.isalnum, self._text[start:end]))

    def _cut_each(self, pieces: Iterable[Piece], size: int, overlap: int = 0) -> list[Piece]:
        return [part for piece in pieces for part in self._cut(*piece, size, overlap)]

    def _cut(self, start: int, end: int, size: int, overlap: int = 0) -> list[Piece]:
        """Cut a piece into pieces of at most `size`."""
        limit = self._ruler.reach(start, size)
        if limit >= end:
            return [(start, end)]
        pieces: list[Piece] = []
        cut = start
        second_last = self._ruler.reach_back(end, size)
        not_a_crumb = self._ruler.reach_back(end, max(1, size // SMALLEST_SHARE))
        while limit < end:
            # A piece ends behind what is new in it: after white space and what it repeats.
            fresh = self._visible(cut) if self._text[cut].isspace() else cut
            earliest, latest, target = max(start + (limit - start) // SMALLEST_SHARE, fresh + 1), limit, limit
            if second_last <= limit:  # two pieces are left to make: balance them
                latest = max(min(limit, not_a_crumb), fresh + 1)
                earliest = min(max(earliest, second_last), latest)
                target = min(max(earliest, (second_last + limit) // 2), latest)
            cut = self._break(fresh, earliest, latest, target) or self._inside_word(fresh, target)
            if cut >= end:
                break
            pieces.append((start, cut))
            previous, start = start, cut
            repeated = self._cuts(previous, cut)[-overlap:] if overlap else []
            if repeated and self._ruler.reach(repeated[0], size) >= self._end_of_cluster(self._visible(cut)):
                start = repeated[0]  # there is room for something new behind it
            limit = self._ruler.reach(start, size)
        pieces.append((start, end))
        return pieces

    def _break(self, fresh: int, earliest: int, latest: int, target: int) -> int | None:
        """Choose where to end a piece: the strongest kind of break first, then the one nearest to the target."""
        cut = _nearest(self._paragraphs, earliest, latest, target)
        if cut >= earliest:
            return cut
        # Where none ends late enough, a small piece is still better than a torn sentence; so with lines and words.
        cut = _nearest(self._sentences, earliest, latest, target)
        if cut > fresh:
            return cut
        block = self._blocks[bisect_right(self._starts, fresh) - 1]
        strong = (_LINE, fresh) if block.kind in ATOMIC else (_CLAUSE, earliest - 1)
        for pattern, start in (strong, (_WORD, earliest - 1), (_WORD, fresh)):
            cuts = [match.end() for match in pattern.finditer(self._text, start, latest + 1)]
            while cuts:
                cut = _nearest(cuts, earliest, latest, target)
                if is_grapheme_boundary(self._text, cut, fresh):
                    return cut
                cuts.remove(cut)
        return None

    def _inside_word(self, fresh: int, target: int) -> int:
        """Choose where to end a piece inside an endless word; if one grapheme cluster fills it, behind that."""
        first = end_of_cluster(self._text, fresh, max(target, fresh) + 1)
        for cut in range(target, first - 1, -1):
            following = self._text[cut : self._end_of_cluster(cut)]
            if not following.isspace() and is_grapheme_boundary(self._text, cut, fresh):
                return cut
        return self._visible(max(target, self._end_of_cluster(fresh)))

    def _visible(self, start: int) -> int:
        """Find the first grapheme cluster that is not white space; one that carries a mark is none."""
        position = first_nonblank(self._text, Span(start, len(self._text)))
        return position if is_grapheme_boundary(self._text, position, start) else position - 1

    def _end_of_cluster(self, start: int) -> int:
        return end_of_cluster(self._text, start, start + LONGEST_CLUSTER)

    @cached_property
    def _sentences(self) -> list[int]:
        """Where blocks and sentences start; a heading, a table or code has no sentences."""
        starts: list[int] = []
        for block in self._blocks:
            starts.append(block.span.start)
            if block.kind != "heading" and block.kind not in ATOMIC:
                starts += sentence_cuts(self._text, block.span, self._language)
        return starts

    def _cuts(self, after: int, before: int) -> list[int]:
        """Find the starts of blocks and sentences strictly between two positions."""
        return self._sentences[bisect_right(self._sentences, after) : bisect_left(self._sentences, before)]


def _nearest(cuts: Sequence[int], earliest: int, latest: int, target: int) -> int:
    """Find the cut from `earliest` to `latest` nearest to a target between them; else the last one before, or -1."""
    index = bisect_left(cuts, target)
    below = cuts[index - 1] if index else -1
    if index < len(cuts) and (above := cuts[index]) <= latest and (below < earliest or above - target < target - below):
        return above
    return below
