"""Where a text may be cut without tearing a character as a reader sees it (a grapheme cluster) apart."""

import regex

_CLUSTER = regex.compile(r"\X")
# What can stand between the two halves of one cluster, in the terms of Unicode's UAX #29.
_LINK = regex.compile(r"[\p{GCB=Extend}\p{GCB=ZWJ}]")
_FIRST_FLAG_HALF, _LAST_FLAG_HALF = "\U0001f1e6", "\U0001f1ff"

# A cluster may be cut if it has more code points than this; real ones stay far below it.
LONGEST_CLUSTER = 64


def end_of_cluster(text: str, start: int, limit: int) -> int:
    """Find where the grapheme cluster ends that starts at a position, looking no further than `limit`."""
    if _is_flag_half(text[start]):  # in the whole text the library would look back to where their run begins
        return start + int(_CLUSTER.match(text[start:limit]).end())
    return int(_CLUSTER.match(text, start, limit).end())


def is_grapheme_boundary(text: str, position: int, floor: int = 0) -> bool:
    """
    Tell whether a text can be cut at a position without tearing a grapheme cluster.

    :param text: Any text.
    :param position: A position in the text.
    :param floor: A boundary at or before `position`; what lies before it is not looked at.
    :returns: False inside a grapheme cluster.
    """
    if not floor < position < len(text):
        return True
    before, after = text[position - 1], text[position]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    if _is_flag_half(before) and _is_flag_half(after):  # they pair up from the begin of their run
        start = position - 1
        while start > floor and _is_flag_half(text[start - 1]):
            start -= 1
        return (position - start) % 2 == 0
    # Of all other rules only two look further back than one character: those for what a link joins to its base, as in
    # an emoji of several persons or a conjunct of Indic consonants.
    start = position - 1
    lowest = max(floor, position - LONGEST_CLUSTER)
    if end_of_cluster(text, start, position + 1) <= position:
        while start > lowest and _LINK.match(text, start):
            start -= 1
    return end_of_cluster(text, start, position + 1) <= position


def _is_flag_half(character: str) -> bool:
    return _FIRST_FLAG_HALF <= character <= _LAST_FLAG_HALF
