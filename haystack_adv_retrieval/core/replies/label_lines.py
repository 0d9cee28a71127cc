"""
Orders of labels in the lines of a reply: "[2] > [1]", "2, 1", a list down the page.

A line is read as a word over the kinds of its tokens, so that a few patterns over such words say which lines state an
order: "1. [3]" becomes "B.M", an ordinal and a marked label.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

NOUN = r"(?:documents?|docs?|passages?|candidates?|items?|texts?|sentences?|chunks?|results?|labels?|ids?|index|number)"
NUMBER = r"(?<!\d)\d{1,4}(?!\d)"
# Words before labels that take them out of an order.
DENIED = re.compile(
    r"\b(?:not|none|no|neither|nor|cannot|can't|irrelevant|unrelated|exclud\w*|omit\w*|without|worst|except|input"
    r"|original|initial|given)\b",
    re.IGNORECASE,
)
_UPSIDE_DOWN = re.compile(r"\bleast\b.{0,40}\bmost\b|\bworst\b.{0,40}\bbest\b|\bascending\b", re.IGNORECASE | re.DOTALL)

_IN_NOUN = rf"(?:{NOUN}[\s_:#.-]*)"
_TOKENS = {  # the first that matches wins
    "s": r"[:=–-]?\s*\(\s*(?:score|relevance)\s*[:=]?\s*\d[\d./]*\s*%?\s*\)"  # a score: (score 9), : 0.8, 4/5, 80 %
    r"|[:=–-]?\s*\(?\s*(?:(?:score|relevance)\s*[:=]?\s*)?"
    r"(?<!\d)(?:\d{0,4}\.\d+|\d{1,4}\s*(?:/\s*\d+|%))\s*\)?",
    "M": rf"[\[【(]\s*{_IN_NOUN}?#?{NUMBER}\s*[\]】)]|{_IN_NOUN}\[?{NUMBER}\]?|#{NUMBER}",  # a marked label: [3], doc 3
    "B": NUMBER,  # a bare number
    ">": r"[>→≻]+|[-=]+>",
    ",": r"[,;|&]|\band\b|\bthen\b",
    ":": r"[:=]",
    ".": r"\.",
    "(": r"[(\[{【]",
    ")": r"[)\]}】]",
    "w": r"[^\W\d]+(?:'[^\W\d]+)?|\S",
}
_TOKEN = re.compile("|".join(f"({token})" for token in _TOKENS.values()), re.IGNORECASE)
_KINDS = "".join(_TOKENS)
# Words that state an order; the group holds it. "1: 3" is none of them: it may be a rank and a label, or the reverse.
_CHAIN = re.compile(r"(Ms?(?:>[MB]s?)+|Bs?(?:>[MB]s?){2,})")
_LIST = re.compile(r"\(?([MB]s?(?:[,>]*[MB]s?)*)\)?[,.]*$")
_NUMBERED = re.compile(r",?w?B(?:[.):,]+(Ms?).*|[.)]+(Bs?)[.,]*)$")
_COMMENTED = re.compile(r"(M)[^MB].*$|(B)[.)]?:?w.*$")
_INTRODUCTION = re.compile(r"[w,.()]*:")


class Entry(NamedTuple):
    """
    A label as a reply lists it.

    :param label: The label.
    :param score: The score that stands with it.
    :param rank: The rank that stands with it.
    """

    label: int
    score: float | None = None
    rank: float | None = None


def ordered(entries: list[Entry]) -> list[int]:
    """Bring labels in the order that their ranks or scores give; without these they stay as they are listed."""
    scores = [entry.score for entry in entries]
    if entries and all(entry.rank is not None for entry in entries):
        entries = sorted(entries, key=lambda entry: entry.rank or 0)
    elif None not in scores and scores != list(range(1, len(scores) + 1)):  # 1, 2, 3 ... are ranks
        entries = sorted(entries, key=lambda entry: -(entry.score or 0))
    return [entry.label for entry in entries]


def joined(orders: Iterable[list[int]]) -> list[int]:
    """Join the parts of one order, such as tiers; of a draft and its correction only the last counts."""
    whole: list[int] = []
    for order in reversed(list(orders)):
        if set(order) & set(whole):
            break
        whole = order + whole
    return whole


def labels_in_lines(text: str) -> list[int] | None:
    """
    Read the order of labels that the lines of a text state.

    :param text: The text.
    :returns: The labels as they are named, or None if no line states an order or it runs from worst to best.
    """
    if _UPSIDE_DOWN.search(text):
        return None
    orders: list[list[Entry]] = []
    commented: list[int] = []
    denied = in_column = False
    for line in _lines(text):
        denied = line.is_denied or (denied and not line.is_introduced)
        if denied:
            continue
        if match := _CHAIN.search(line.kinds) or _LIST.match(line.kinds) or _NUMBERED.match(line.kinds):
            entries = list(_entries(line, *match.span(match.lastindex or 0)))
            if in_column and len(entries) == 1:  # one label a line
                orders[-1] += entries
            else:
                orders.append(entries)
            in_column = len(entries) == 1
        else:
            in_column = False
            if _COMMENTED.match(line.kinds):
                commented += (entry.label for entry in _entries(line, 0, 1))
    if orders:
        return joined(map(ordered, orders))
    # "[3] Barley ..." down the page is an order, unless it is a comment on each in the order they were shown.
    return commented if len(commented) > 1 and commented != sorted(commented) else None


class _Line(NamedTuple):
    kinds: str
    tokens: list[str]
    is_introduced: bool  # words and a colon came first
    is_denied: bool  # these, or other words before the first label, deny what follows


def _lines(text: str) -> Iterator[_Line]:
    text = re.sub(r"<[^<>]{1,30}>|[*`\"]|\\boxed", "", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    text = "\n".join(re.sub(r"^[-•+>] ", "", line) for line in lines if line)
    text = re.sub(r"([:>→,])\n", r"\1 ", text)  # goes on in the next line
    for line in text.splitlines():
        found = list(_TOKEN.finditer(line))
        kinds = "".join(_KINDS[(match.lastindex or 1) - 1] for match in found)
        introduction = _INTRODUCTION.match(kinds)
        first = introduction.end() if introduction else 0
        label = re.search("[MB]", kinds)
        before = line[: found[label.start()].start()] if label else line
        tokens = [match.group() for match in found[first:]]
        yield _Line(kinds[first:], tokens, bool(introduction), bool(DENIED.search(before)))


def _entries(line: _Line, start: int, end: int) -> Iterator[Entry]:
    for index in range(start, end):
        if line.kinds[index] in "MB":
            scores = line.tokens[index + 1 : index + 2] if line.kinds[index + 1 : index + 2] == "s" else []
            label = int(re.findall(r"\d+", line.tokens[index])[-1])
            yield Entry(label, *(float(re.findall(r"\d*\.?\d+", score)[0]) for score in scores))
