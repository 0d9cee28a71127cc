"""
Reading numbered labels out of a model's reply: a ranking of passages, or a choice of sentences.

Labels are the numbers 1 to n. They are read where a reply states an order (JSON, "[2] > [1]", "2, 1", a list down the
page) and nowhere else: a number in prose, a score or a refusal is no label. What can be read in two ways is not read
at all, since asking again is cheap and nobody would notice a silent misreading.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from haystack_adv_retrieval.core.replies import answer_of, json_values


class _Entry(NamedTuple):
    label: int
    score: float | None = None
    rank: float | None = None


_NOUN = (
    r"(?:documents?|docs?|passages?|candidates?|items?|texts?|sentences?|chunks?|results?|labels?|ids?|index|number)"
)
_NUMBER = r"(?<!\d)\d{1,4}(?!\d)"
# A line of a reply is read as a word over the kinds of its tokens; the first kind that matches wins.
_KINDS = {
    "s": r"[:=–-]?\s*\(\s*(?:score|relevance)\s*[:=]?\s*\d[\d./]*\s*%?\s*\)"
    r"|[:=–-]?\s*\(?\s*(?:(?:score|relevance)\s*[:=]?\s*)?(?<!\d)(?:\d{0,4}\.\d+|\d{1,4}\s*(?:/\s*\d+|%))\s*\)?",  # a score
    "M": rf"[\[【(]\s*(?:{_NOUN}[\s_:#.-]*)?#?{_NUMBER}\s*[\]】)]|{_NOUN}[\s_:#.-]*\[?{_NUMBER}\]?|#{_NUMBER}",  # marked
    "B": _NUMBER,  # a bare number
    ">": r"[>→≻]+|[-=]+>",
    ",": r"[,;|&]|\band\b|\bthen\b",
    ":": r"[:=]",
    ".": r"\.",
    "(": r"[(\[{【]",
    ")": r"[)\]}】]",
    "w": r"[^\W\d]+(?:'[^\W\d]+)?|\S",
}
_TOKEN = re.compile("|".join(f"(?P<k{i}>{kind})" for i, kind in enumerate(_KINDS.values())), re.IGNORECASE)
_LETTERS = list(_KINDS)
# Which words state an order, and the part of them that holds it. "1. [3]" is an ordinal and a label; "1: 3" could be
# either way round and is not here.
_CHAIN = re.compile(r"Ms?(?:>[MB]s?)+|Bs?(?:>[MB]s?){2,}")
_LIST = re.compile(r"\(?([MB]s?(?:[,>]*[MB]s?)*)\)?[,.]*$")
_NUMBERED = re.compile(r",?w?B(?:[.):,]+(Ms?).*|[.)]+(Bs?)[.,]*)$")
_LED_BY = re.compile(r"(M)[^MB].*$|(B)[.)]?:?w.*$")
_PREFIX = re.compile(r"[w,.()]*:")
# Words before labels that take them out of the ranking, or turn it round.
_DENIED = re.compile(
    r"\b(?:not|none|no|neither|nor|cannot|can't|irrelevant|unrelated|exclud\w*|omit\w*|without|worst|except|input"
    r"|original|initial|given)\b",
    re.IGNORECASE,
)
_REVERSED = re.compile(r"\bleast\b.{0,40}\bmost\b|\bworst\b.{0,40}\bbest\b|\bascending\b", re.IGNORECASE | re.DOTALL)
_NOTHING = re.compile(rf"\W*(?:none|nothing|n/?a|0|no (?:relevant )?{_NOUN}|\[\s*\])\W*", re.IGNORECASE)

_LABEL = re.compile(rf"\s*(?:[\[(]?\s*(?:{_NOUN}[\s_:#.-]*)?[\[(]?#?({_NUMBER})\s*[\])]*|[\[]({_NUMBER})\].+)\s*", re.I)
_LABEL_KEY = re.compile(rf"(?:{_NOUN}|num)(?:_?(?:id|index|no|number|label))?$", re.IGNORECASE)
_SCORE_KEY = re.compile(r"score|relevance|confidence|prob|grade|rating", re.IGNORECASE)
_RANK_KEY = re.compile(r"rank(?:ing)?|position|place", re.IGNORECASE)
_ANSWER_KEY = re.compile(r"rank|order|final|answer|sorted", re.IGNORECASE)


def read_labels(text: str, count: int, *, allow_none: bool = False, ranges: bool = False) -> tuple[list[int], bool]:
    """
    Read the labels that a reply names, in its order.

    :param text: The reply.
    :param count: How many labels there are: 1 to `count`.
    :param allow_none: Whether a reply may name none, by an empty list or a word such as "none".
    :param ranges: Whether "3-5" means 3, 4, 5.
    :returns: The labels, each once, and whether something had to be mended, left out or ignored.
    :raises ValueError: If the reply states no order of labels, or one that can be read in two ways.
    """
    answer = answer_of(text)
    if ranges:
        answer = re.sub(r"(?<![\d.-])(\d+)\s*[-–]\s*(\d+)(?![\d.-])", lambda match: _expanded(match, count), answer)
    if allow_none and _NOTHING.fullmatch(answer):
        return [], False
    named, mended = _from_json(answer)
    if named is None:
        named = _from_lines(answer)
    if named or (named == [] and allow_none):
        return _valid(named, count, mended)
    raise ValueError("it names no label")


def _expanded(match: re.Match[str], count: int) -> str:
    first, last = int(match[1]), int(match[2])
    return ", ".join(map(str, range(first, last + 1))) if 0 < first < last <= count else match[0]


def _valid(named: list[int], count: int, mended: bool) -> tuple[list[int], bool]:
    """Keep the first mention of each real label."""
    if 0 in named and max(named) < count:  # counted from 0: clear if it is all of them, a guess otherwise
        if sorted(named) != list(range(count)):
            raise ValueError("it counts from 0")
        return [label + 1 for label in named], True
    labels = list(dict.fromkeys(label for label in named if 1 <= label <= count))
    if 2 * sum(1 <= label <= count for label in named) < len(named):
        raise ValueError(f"most of its numbers are no labels, which go from 1 to {count}")
    return labels, mended or labels != named


def _joined(sequences: Iterable[list[int]]) -> list[int]:
    """Join the parts of one order (tiers, one label a line); of a draft and its correction only the last counts."""
    joined: list[int] = []
    for sequence in reversed(list(sequences)):
        if set(sequence) & set(joined):
            break
        joined = sequence + joined
    return joined


def _ordered(entries: list[_Entry]) -> list[int]:
    """Bring labels with ranks or scores in the order that these give; without them they stay as they are listed."""
    scores = [entry.score for entry in entries]
    if entries and all(entry.rank is not None for entry in entries):
        entries = sorted(entries, key=lambda entry: entry.rank or 0)
    elif None not in scores and scores != list(range(1, len(scores) + 1)):  # 1, 2, 3 ... are ranks
        entries = sorted(entries, key=lambda entry: -(entry.score or 0))
    return [entry.label for entry in entries]


# --- JSON ---


def _from_json(answer: str) -> tuple[list[int] | None, bool]:
    """Read labels out of the JSON of a reply: None if there is none that holds an order, [] if it holds an empty one."""
    # A list of one, "[3]", is a marked label and left to the reading of lines.
    values = [
        (value, repaired)
        for value, start, end, repaired in json_values(answer)
        if isinstance(value, dict) or _holds_objects(value) or (len(value) != 1 and _stands_alone(answer, start, end))
    ]
    one_a_line = _sequence([value for value, _ in values]) if all(_entry(value) for value, _ in values) else None
    if one_a_line:
        return one_a_line, any(repaired for _, repaired in values)
    read = [(sequence, repaired) for value, repaired in values if (sequence := _sequence(value)) is not None]
    return (_joined(sequence for sequence, _ in read) if read else None), any(repaired for _, repaired in read)


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _stands_alone(answer: str, start: int, end: int) -> bool:
    """Tell whether nothing else is on the lines of a list, save an introduction that ends with a colon."""
    before, after = answer[:start].rstrip("*` "), answer[end:].partition("\n")[0].strip("*` .,;")
    heading = before.rstrip("`\n").rpartition("\n")[2]
    if heading.endswith((":", "=")):
        return not after and not _DENIED.search(heading)
    return not after and (not before or before.endswith("\n"))


def _sequence(value: Any) -> list[int] | None:
    """Read a JSON value as an order of labels, or None."""
    if isinstance(value, str):
        return _from_lines(value)
    if isinstance(value, list):
        return _sequence_of_list(value)
    if not isinstance(value, dict):
        return None
    scored = [_Entry(label, score) for key, score in value.items() if (label := _label(key)) and _is_number(score)]
    if scored and len(scored) == len(value):
        # {"3": 0.9, "1": 0.2} are scores; {"3": 1, "1": 2} could be ranks of labels or labels of ranks.
        is_clear = any(entry.score % 1 for entry in scored if entry.score is not None)
        return _ordered(scored) if is_clear else None
    entry = _entry(value)
    if entry is not None:
        return [entry.label]
    found = {
        key: sequence
        for key, part in value.items()
        if not _DENIED.search(key.replace("_", " ")) and not _SCORE_KEY.fullmatch(key.rstrip("s"))
        if (sequence := _sequence(part)) is not None
    }
    if len(_joined(found.values())) < sum(map(len, found.values())):
        found = {key: sequence for key, sequence in found.items() if _ANSWER_KEY.search(key)}
        if len(found) != 1:
            return None
    return _joined(found.values()) if found else None


def _sequence_of_list(items: list[Any]) -> list[int] | None:
    if items and all(isinstance(item, list) for item in items):
        pairs = [_Entry(label, item[1]) for item in items if len(item) == 2 and (label := _label(item[0]))]
        if len(pairs) == len(items) and any(_is_number(pair.score) and pair.score % 1 for pair in pairs):
            return _ordered(pairs)
        flat = [part for item in items for part in item]
        labels = _sequence_of_list(flat) if not any(isinstance(part, list) for part in flat) else None
        return labels if labels and len(set(labels)) == len(labels) else None
    entries = [_entry(item) for item in items]
    named = [entry for entry in entries if entry is not None]
    return _ordered(named) if named or not items else None


def _entry(item: Any) -> _Entry | None:
    """Read one item of a list: a number, "[3]", {"index": 3, "score": 0.9} or {"3": 0.9}."""
    if not isinstance(item, dict):
        label = _label(item)
        return None if label is None else _Entry(label)
    labels = [_label(part) for key, part in item.items() if _LABEL_KEY.match(key)]
    labels = [label for label in labels if label is not None]
    if not labels and len(item) == 1:
        [(key, score)] = item.items()
        label = _label(key)
        return _Entry(label, score) if label is not None and _is_number(score) else None
    if not labels:
        return None
    scores = [part for key, part in item.items() if _SCORE_KEY.search(key) and _is_number(part)]
    ranks = [part for key, part in item.items() if _RANK_KEY.fullmatch(key) and _is_number(part)]
    return _Entry(labels[0], scores[0] if scores else None, ranks[0] if ranks else None)


def _label(value: Any) -> int | None:
    if isinstance(value, str):
        match = _LABEL.fullmatch(value)
        return int(match[1] or match[2]) if match else None
    return int(value) if _is_number(value) and value % 1 == 0 and value >= 0 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- lines ---


def _from_lines(answer: str) -> list[int] | None:
    """Read labels out of a reply in words: None if no line states an order."""
    if _REVERSED.search(answer):
        return None
    clear: list[list[_Entry]] = []
    led: list[int] = []
    denied = in_column = False
    for kinds, tokens, has_prefix, is_denied in _lines(answer):
        denied = is_denied or (denied and not has_prefix)
        if denied:
            continue
        if match := _CHAIN.search(kinds) or _LIST.match(kinds) or _NUMBERED.match(kinds):
            start, end = match.span(match.lastindex or 0)
            entries = list(_entries(kinds[start:end], tokens[start:end]))
            if in_column and len(entries) == 1:  # one label a line
                clear[-1] += entries
            else:
                clear.append(entries)
            in_column = len(entries) == 1
        else:
            in_column = False
            if match := _LED_BY.match(kinds):
                led += [entry.label for entry in _entries(kinds[0], tokens[:1])]
    if clear:
        return _joined(map(_ordered, clear))
    # "[3] Barley ..." down the page is a ranking, unless it is a comment on each in the order they were shown.
    return led if len(led) > 1 and led != sorted(led) else None


def _lines(answer: str) -> Iterator[tuple[str, list[str], bool, bool]]:
    """Split a reply into lines: the kinds and texts of the tokens, whether words and a colon come first, or a denial."""
    answer = re.sub(r"<[^<>]{1,30}>|[*`\"]|\\boxed", "", answer)
    lines = (" ".join(line.split()) for line in answer.splitlines())
    answer = "\n".join(re.sub(r"^[-•+>] ", "", line) for line in lines if line)
    answer = re.sub(r"([:>→,])\n", r"\1 ", answer)  # goes on in the next line
    for line in answer.splitlines():
        found = list(_TOKEN.finditer(line))
        kinds = "".join(_LETTERS[(match.lastindex or 1) - 1] for match in found)
        prefix = _PREFIX.match(kinds)
        skip = prefix.end() if prefix else 0
        labels = re.search("[MB]", kinds)
        before = line[: found[labels.start()].start()] if labels else line
        yield kinds[skip:], [match.group() for match in found[skip:]], bool(prefix), bool(_DENIED.search(before))


def _entries(kinds: str, tokens: list[str]) -> Iterator[_Entry]:
    for index, (kind, token) in enumerate(zip(kinds, tokens, strict=True)):
        if kind in "MB":
            label = int(re.findall(r"\d+", token)[-1])
            score = _score(tokens[index + 1]) if kinds[index + 1 : index + 2] == "s" else None
            yield _Entry(label, score)


def _score(token: str) -> float:
    return float(re.findall(r"\d*\.?\d+", token)[0])
