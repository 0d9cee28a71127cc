"""Measuring text in words, tokens or characters."""

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from haystack_adv_retrieval.core.sentences import without_surrogates
from haystack_adv_retrieval.core.spans import Span

# Scripts without spaces between words, in which every character counts as a word, as word processors do.
_UNSPACED = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
# A longer run of characters (an address, a hash, base64) counts once per so many.
LONGEST_UNIT = 32
_IS_BLANK = np.array([chr(code).isspace() for code in range(0x3001)] + [False])
_NONBLANK = re.compile(r"\S")


class Ruler(Protocol):
    """Measures spans of one text; the white space around a span never counts."""

    def count(self, start: int, end: int) -> int:
        """Count the units of `[start, end)`."""

    def reach(self, start: int, units: int) -> int:
        """Find the last end for which `[start, end)` holds at most so many units."""

    def reach_back(self, end: int, units: int) -> int:
        """Find the first start for which `[start, end)` holds at most so many units."""


class UnitRuler:
    """
    A ruler of units that start at known positions, such as words or tokens.

    :param starts: Where the units start, ascending.
    :param length: Length of the text in characters.
    """

    def __init__(self, starts: Sequence[int], length: int) -> None:
        self._starts = starts
        self._length = length

    @cached_property
    def _ordinals(self) -> memoryview:
        """How many units start before each position. Where there is much to cut, a table pays off."""
        table = np.zeros(self._length + 1, dtype=np.int32)
        table[1:][np.asarray(self._starts, dtype=np.intp)] = 1
        return np.cumsum(table, out=table).data

    def count(self, start: int, end: int) -> int:
        """Count the units that start in `[start, end)`."""
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def reach(self, start: int, units: int) -> int:
        """Find the last end for which `[start, end)` holds at most so many units."""
        index = self._ordinals[start] + units
        return self._starts[index] if index < len(self._starts) else self._length

    def reach_back(self, end: int, units: int) -> int:
        """Find the first start for which `[start, end)` holds at most so many units."""
        index = self._ordinals[end] - units
        return self._starts[index] if index > 0 else 0


class CharacterRuler:
    """
    A ruler of code points.

    :param text: The text.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def count(self, start: int, end: int) -> int:
        """Count the characters of `[start, end)` without the white space around them."""
        return len(self._text[start:end].strip())

    def reach(self, start: int, units: int) -> int:
        """Find the last end for which `[start, end)` holds at most so many characters."""
        return self._nonblank(self._nonblank(start) + units)

    def reach_back(self, end: int, units: int) -> int:
        """Find the first start for which `[start, end)` holds at most so many characters."""
        while end > 0 and self._text[end - 1].isspace():
            end -= 1
        return max(0, end - units)

    def _nonblank(self, position: int) -> int:
        match = _NONBLANK.search(self._text, position)
        return match.start() if match else len(self._text)


def word_starts(text: str) -> Sequence[int]:
    """
    Find where words start.

    :param text: Any text.
    :returns: Positions, ascending.
    """
    if text.isascii():
        codes = np.frombuffer(text.encode(), dtype=np.uint8)
        blank = _IS_BLANK[codes]
        begins = ~blank
        begins[1:] &= blank[:-1]
    else:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        blank = _IS_BLANK[np.minimum(codes, len(_IS_BLANK) - 1)]
        unspaced = np.zeros_like(blank)
        for first, last in _UNSPACED:
            unspaced |= (codes >= first) & (codes <= last)
        begins = ~blank
        begins[1:] &= blank[:-1] | unspaced[1:] | unspaced[:-1]
    starts = np.flatnonzero(begins)
    inner = _inside_long_words(starts, np.append(starts[1:], len(codes)))
    both = np.concatenate([starts, inner[~blank[inner]]])
    return array("q", np.sort(both, kind="stable").astype(np.int64).tobytes())  # stable: fast with ascending runs


def token_starts(text: str, pieces: Sequence[Span], tokenizer: Tokenizer) -> list[int]:
    """
    Find where tokens start, in one pass over the text.

    :param text: Any text.
    :param pieces: Spans that tile it, at whose borders no token may reach across; they are tokenised in parallel.
    :param tokenizer: A tokenizer without truncation.
    :returns: Positions, ascending; an unknown word that became one long token has several.
    """
    starts: set[int] = set()
    for first in range(0, len(pieces), 256):
        batch = pieces[first : first + 256]
        contents = [without_surrogates(piece.text(text)) for piece in batch]
        for piece, encoding in zip(batch, tokenizer.encode_batch(contents, add_special_tokens=False), strict=True):
            for start, end in encoding.offsets:
                starts.add(piece.start + start)
                if end - start > LONGEST_UNIT:
                    starts.update(range(piece.start + start, piece.start + end, LONGEST_UNIT))
    return sorted(starts)


def _inside_long_words(starts: NDArray[np.intp], ends: NDArray[np.intp]) -> NDArray[np.intp]:
    """Find where words are divided that are longer than `LONGEST_UNIT`."""
    more = np.maximum(0, (ends - starts - 1) // LONGEST_UNIT)
    ordinals = np.arange(1, more.sum() + 1) - np.repeat(np.cumsum(more) - more, more)
    positions: NDArray[np.intp] = np.repeat(starts, more) + ordinals * LONGEST_UNIT
    return positions
