"""Where a text may be cut without tearing a character as a reader sees it (a grapheme cluster) apart."""

import regex

# The classes of Unicode's UAX #29 whose members can join a neighbour.
_JOINER = regex.compile(
    r"[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}\p{GCB=Prepend}\p{GCB=L}\p{GCB=V}\p{GCB=T}\p{GCB=RI}]"
)
_FLAG_HALF = regex.compile(r"\p{GCB=RI}")
_CLUSTER = regex.compile(r"\X")

# The longest cluster that is kept whole, in code points; real ones stay far below it.
LONGEST_CLUSTER = 64


def grapheme_at(text: str, position: int) -> str:
    """Read the grapheme cluster that starts at a position inside the text."""
    return _CLUSTER.match(text, position).group()


def is_grapheme_boundary(text: str, position: int, floor: int = 0) -> bool:
    """
    Tell whether a text can be cut at a position.

    :param text: Any text.
    :param position: A position inside the text.
    :param floor: A boundary at or before `position`; the search for the cluster's begin goes no further back.
    :returns: False inside a grapheme cluster of at most `LONGEST_CLUSTER` code points.
    """
    if not 0 < position < len(text):
        return True
    before, after = text[position - 1], text[position]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    start = position
    # Flags pair up from the begin of their run, so a run of them is followed back to where it begins.
    while start > floor and _FLAG_HALF.match(text, start - 1):
        start -= 1
    lowest = max(floor, start - LONGEST_CLUSTER)
    while start > lowest and (_JOINER.match(text, start) or _JOINER.match(text, start - 1)):
        start -= 1
    while start < position:
        start = _CLUSTER.match(text, start).end()
    return start == position
