"""A text as a tree of spans: blocks of several sizes, each cut where the text itself has a break."""

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

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

    def levels(self, block_sizes: Sequence[int], *, sentence_leaves: bool, overlap: int = 0) -> list[list[list[Span]]]:
        """
        Cut the whole text, level by level.

        :param block_sizes: The largest size of each level, coarse to fine.
        :param sentence_leaves: Make every sentence a leaf of its own instead of filling leaves up to their size.
        :param overlap: How many sentences a leaf repeats of the one before it.
        :returns: For each level the children of each span of the level above; one entry, for the whole text, at the
            first level.
        """
        if not self._blocks:
            return [[] for _ in block_sizes]
        levels: list[list[list[Span]]] = []
        parents = [Span(0, len(self._text))]
        for level, size in enumerate(block_sizes, start=1):
            if level < len(block_sizes):
                children = [list(self._fill(parent, size)) for parent in parents]
            elif sentence_leaves:
                children = [list(self.sentences(parent, size)) for parent in parents]
            else:
                children = [list(self._fill(parent, size, overlap)) for parent in parents]
            levels.append(children)
            parents = [child for siblings in children for child in siblings]
        return levels

    def sentences(self, span: Span, size: int) -> Iterator[Span]:
        """
        Cut a span into its sentences; one that is too long is divided, and punctuation alone joins its neighbour.

        :param span: A span of the text.
        :param size: The largest size.
        :returns: The pieces, which tile the span.
        """
        borders = itertools.pairwise([span.start, *self._cuts(span.start, span.end), span.end])
        for piece in self._join([Span(*ends) for ends in borders], self._says_nothing, size):
            yield from self._cut(piece, size)

    def _fill(self, span: Span, size: int, overlap: int = 0) -> Iterator[Span]:
        """Fill blocks with whole sections, or cut a section that is too large; small neighbours share a block."""
        within = self._sections[bisect_right(self._sections, span.start) : bisect_left(self._sections, span.end)]
        if not within:
            return self._cut(span, size, overlap)
        sections = tile(self._text, within, span)
        joined = self._join(sections, lambda piece: self._count(piece) * SMALLEST_SHARE < size, size)
        return itertools.chain.from_iterable(self._cut(section, size, overlap) for section in joined)

    def _join(self, pieces: Sequence[Span], is_crumb: Callable[[Span], bool], size: int) -> list[Span]:
        """Join a crumb with its neighbour, the following one if there is one, as long as both fit."""
        joined: list[Span] = []
        for piece in pieces:
            if joined and (is_crumb(joined[-1]) or (piece is pieces[-1] and is_crumb(piece))):
                both = Span(joined[-1].start, piece.end)
                if self._count(both) <= size:
                    joined[-1] = both
                    continue
            joined.append(piece)
        return joined

    def _says_nothing(self, span: Span) -> bool:
        return not any(map(str.isalnum, span.text(self._text)))

    def _count(self, span: Span) -> int:
        return self._ruler.count(span.start, span.end)

    def _cut(self, span: Span, size: int, overlap: int = 0) -> Iterator[Span]:
        """Cut a span into pieces of at most `size`."""
        start, limit = span.start, self._ruler.reach(span.start, size)
        if limit < span.end:
            fresh = self._visible(start)  # a piece ends behind what is new in it: after white space and what it repeats
            second_last = self._ruler.reach_back(span.end, size)
            not_a_crumb = self._ruler.reach_back(span.end, max(1, size // SMALLEST_SHARE))
        while limit < span.end:
            earliest, latest, target = max(start + (limit - start) // SMALLEST_SHARE, fresh + 1), limit, limit
            if second_last <= limit:  # two pieces are left to make: balance them
                earliest, latest = max(earliest, second_last), max(min(limit, not_a_crumb), fresh + 1)
                target = (second_last + limit) // 2
            cut = self._break(fresh, min(earliest, latest), latest, target)
            cut = cut or self._inside_word(fresh, min(target, latest))
            if cut >= span.end:
                break
            yield Span(start, cut)
            previous, start, fresh = start, cut, self._visible(cut)
            repeated = self._cuts(previous, cut)[-overlap:] if overlap else []
            if repeated and self._ruler.reach(repeated[0], size) >= self._end_of_cluster(fresh):
                start = repeated[0]  # there is room for something new behind it
            limit = self._ruler.reach(start, size)
        yield Span(start, span.end)

    def _break(self, fresh: int, earliest: int, latest: int, target: int) -> int | None:
        """Choose where to end a piece: the strongest kind of break first, then the one nearest to the target."""
        first, last = bisect_left(self._paragraphs, earliest), bisect_right(self._paragraphs, latest)
        if first < last:
            return _nearest(self._paragraphs, first, last, target)
        last = bisect_right(self._sentences, latest)
        if self._sentences[last - 1] > fresh:
            # Where none ends late enough, a small piece is still better than a torn sentence; so it is with lines and
            # words.
            first = min(bisect_left(self._sentences, earliest), last - 1)
            return _nearest(self._sentences, first, last, target)
        block = self._blocks[bisect_right(self._starts, fresh) - 1]
        strong = (_LINE, fresh) if block.kind in ATOMIC else (_CLAUSE, earliest - 1)
        for pattern, start in (strong, (_WORD, earliest - 1), (_WORD, fresh)):
            cuts = [match.end() for match in pattern.finditer(self._text, start, latest + 1)]
            while cuts:
                cut = _nearest(cuts, min(bisect_left(cuts, earliest), len(cuts) - 1), len(cuts), target)
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
        if not self._text[start : start + 1].isspace():
            return start
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


def _nearest(cuts: Sequence[int], first: int, last: int, target: int) -> int:
    """Find the one of `cuts[first:last]`, which ascend, that is nearest to a target; of two the earlier."""
    index = bisect_left(cuts, target, first, last)
    if index == last or (index > first and target - cuts[index - 1] <= cuts[index] - target):
        index -= 1
    return cuts[index]
