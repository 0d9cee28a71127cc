"""
Cutting a question into words that can be conditions: values, periods, quantities, names of fields, and cues.

Every word has a kind of one letter, so a question becomes a string that regular expressions can be matched against.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from rapidfuzz import fuzz, process

from haystack_adv_retrieval.core.filter_schema import FilterSchema, MetadataField, fold
from haystack_adv_retrieval.core.self_query.periods import LINK, find_periods, is_calendar_unit
from haystack_adv_retrieval.core.self_query.quantities import FILLER, QUANTITY, Quantity, digits, is_unit

# Kind, what it means, how it is said.
_CUES: list[tuple[str, str, str]] = [
    # c: a comparison before its value
    ("c", ">", "more than, over, above, greater than, higher than, exceeding, after, later than, longer than"),
    ("c", ">", "bigger than, larger than, heavier than, more expensive than, better than"),
    ("c", ">=", "at least, no less than, not less than, no fewer than, minimum of, since, starting in, starting from"),
    ("c", ">=", "not before, no earlier than, not under, not below, as of, as from"),
    ("c", "<", "less than, fewer than, under, below, lower than, before, prior to, earlier than, smaller than"),
    ("c", "<", "shorter than, lighter than, cheaper than"),
    ("c", "<=", "at most, no more than, not more than, up to, maximum of, no longer than, not longer than, not after"),
    ("c", "<=", "no later than, not over, not above, no heavier than, no higher than"),
    # m: a comparison before a number only, "within 30 minutes"
    ("m", "<=", "within"),
    # p: a comparison after its value
    ("p", ">=", "or more, or later, or newer, or higher, or better, or longer, or greater, or heavier"),
    ("p", ">=", "and up, and more, and later, and newer, and higher, onward, onwards"),
    ("p", "<=", "or less, or fewer, or earlier, or older, or lower, or shorter, or cheaper, or lighter"),
    ("p", "<=", "and less, and earlier, and older, and lower"),
    # M: a comparison before or after its value
    ("M", ">=", "minimum, min"),
    ("M", "<=", "maximum, max, at the most, at the latest"),
    # g: the age of a date
    ("g", "<", "older than"),
    ("g", ">", "newer than, younger than, more recent than"),
    # b, f, t, y: ends of a range
    ("b", "", "between"),
    ("f", "", "from"),
    ("t", "", "to"),
    ("t", "<=", "until, till, through"),
    ("y", "<=", "by"),
    # n, o, a: logic
    (
        "n",
        "",
        "not, non, but not, rather than, neither, nor, isn't, aren't, wasn't, weren't, never, doesn't, don't, didn't",
    ),
    ("n", "", "did not"),
    ("n", "except", "no, but no, except, except for, excluding, exclude, without, other than, apart from"),
    ("n", "except", "anything but, everything but, all but"),
    ("B", "", "but"),
    ("o", "", "or"),
    ("a", "", "and"),
    # x: what makes a value vague; X: comparisons in other languages; A: what makes it a topic; O: either
    ("x", "", "around, approximately, roughly, circa, nearly, almost"),
    ("X", "", "vor, nach, seit, bis, unter, über, ohne, nicht, kein, keine, mehr, weniger, mindestens, höchstens"),
    ("X", "", "avant, après, depuis, jusqu'à, jusqu'en, sans, moins, sauf, antes, después, desde, hasta, menos, más"),
    (
        "X",
        "",
        "excepto, depois, até, sem, não, mais, dopo, dal, fino, senza, meno, più, voor, sinds, zonder, niet, geen",
    ),
    ("A", "", "about, regarding, concerning, on the topic of, with regard to, related to"),
    ("O", "", "on"),
    # u, i, s: of, what ends a topic, other function words; h: words for what is searched
    ("u", "", "of"),
    (
        "i",
        "",
        "in, with, for, that, which, who, whose, where, written, wrote, made, take, takes, took, tagged, is, are, was",
    ),
    (
        "s",
        "",
        "a, an, the, our, my, your, their, his, her, its, this, these, those, at, as, into, during, were, be, been",
    ),
    (
        "s",
        "",
        "has, have, had, do, does, did, can, could, should, would, will, what, when, there, i, we, you, they, it, me",
    ),
    (
        "s",
        "",
        "us, show, find, give, get, list, search, look, looking, tell, want, need, please, any, only, just, also",
    ),
    ("s", "", "either, both, then, now, still, yet, again, say, says, said, see, called, named, all, some"),
    (
        "h",
        "",
        "document, doc, paper, report, article, file, note, text, record, item, entry, thing, result, one, product",
    ),
    ("h", "", "publication, study, book, post, anything, everything, something"),
]
_Meaning = tuple[str, Any, tuple[tuple[MetadataField, Any], ...]]  # kind, means and fields of a `Word`
_NO_MEANING: _Meaning = ("w", None, ())  # of what only looks alike, such as a dotless i
_SYMBOLS = {",": ",", ";": ",", "&": "a", "-": "t", "–": "t", "—": "t"}
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?|[^\w\s]|_")
_BARE_YEAR = re.compile(r"\d{4}")
_MONTH_OR_DAY_ALONE = re.compile(r"[^\W\d_]+\.?")
_BEFORE_MONTH = re.compile(rf"{LINK}(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b", re.I)
_AFTER_CUE = re.compile(
    r"(?:in|on|since|from|until|till|to|before|after|during|of|by|between|and|or|last|next)\s+$", re.I
)


@dataclass(frozen=True)
class Word:
    """
    A part of a question, of one or more words.

    :param kind: Its letter. Besides those of the cues: E an explicit condition such as `year>=2020`, V a value, P a
        period, N a quantity, F the name of a field, ~ nearly a value or a part of one, w another word, "." punctuation.
    :param start: Where it starts in the question.
    :param end: Where it ends.
    :param means: The comparison of a cue; the `Period` or `Quantity`; the field; field, comparison and text of an
        explicit condition.
    :param fields: The fields that it may belong to, each with the value there.
    """

    kind: str
    start: int
    end: int
    means: Any = None
    fields: tuple[tuple[MetadataField, Any], ...] = ()


class Vocabulary:
    """
    What the words of a schema look like in a question.

    :param schema: The fields.
    :param contents: What the collection holds, such as "recipes and dishes of the south": the words before "of" stand
        for what is searched and are no topic.
    """

    def __init__(self, schema: FilterSchema, contents: str = "") -> None:
        self.schema = schema
        self.dates = [field for field in schema.fields if field.type == "date"]
        self.years = [field for field in schema.fields if field.type == "int" and field.unit == "year"]
        self.numeric = [f for f in schema.fields if f.type in ("int", "float") and f not in self.years]
        heads: dict[str, _Meaning] = {}
        cues: dict[str, _Meaning] = {}
        for kind, means, said in [("h", "", ",".join(_heads(contents))), *_CUES]:
            for phrase in filter(None, map(fold, said.split(","))):
                if kind == "h":
                    heads |= dict.fromkeys(_forms(phrase), (kind, means, ()))
                else:
                    cues[phrase] = (kind, means, ())
        names: dict[str, _Meaning] = {}
        values: dict[str, _Meaning] = {}
        for field in schema.fields:
            for name in (field.name, *field.aliases):
                names |= dict.fromkeys(_forms(fold(name)), ("F", field, ()))
            for name, value in _named_values(field):
                for form in _forms(fold(name)):
                    others = values[form][2] if form in values else ()
                    values[form] = ("V", None, tuple(dict.fromkeys((*others, (field, value)))))
        self._meanings = heads | names | values | cues
        parts = {part for form in values for part in form.split() if len(part) > 3}
        self._parts = sorted(parts - set(cues) - set(heads))
        self._phrases = _any_of(self._meanings)
        fields = _any_of(name for field in schema.fields for name in (field.name, *field.aliases)).pattern
        self._explicit = re.compile(
            rf"(?P<field>{fields})(?:\s*(?P<order>==|!=|<=|>=|=|<|>)\s*|:)(?P<value>\"[^\"]+\"|[^\s,;:]+(?:,[^\s,;:]+)*)",
            re.IGNORECASE,
        )

    def words(self, question: str, today: date) -> list[Word]:
        """
        Cut a question into words.

        :param question: The question, in English.
        :param today: The day that relative dates are relative to.
        :returns: The words in their order; none overlaps another.
        """
        found: list[Word] = []
        taken = bytearray(len(question))
        for word in self._candidates(digits(question), today):
            if not any(taken[word.start : word.end]):
                taken[word.start : word.end] = bytes([1]) * (word.end - word.start)
                found.append(word)
        return sorted(found, key=lambda word: word.start)

    def _candidates(self, text: str, today: date) -> Iterator[Word]:
        """List what the text may hold, the surest first."""
        for match in self._explicit.finditer(text):
            if field := self.schema.find(match["field"]):
                yield Word("E", *match.span(), (field, match["order"] or "==", match["value"].strip('"')))
        found = find_periods(text, today) if self.dates or self.years else ()
        periods = [Word("P", *period) for period in found if _is_period(text, *period[:2])]
        years = [word for word in periods if _BARE_YEAR.fullmatch(text[word.start : word.end])]
        quantities = [self._quantity(match) for match in QUANTITY.finditer(text)]
        yield from (word for word in periods if word not in years)
        yield from (word for word in quantities if word and word.fields)
        yield from years
        yield from (word for word in quantities if word)
        for match in self._phrases.finditer(text):
            kind, means, fields = self._meanings.get(fold(match.group()), _NO_MEANING)
            if kind == "V" and _is_compound(text, *match.span()):
                yield Word("~", *match.span())
            elif kind != "V" or len(match.group()) > 2 or match.group().isupper():
                yield Word(kind, *match.span(), means, fields)
        for match in _TOKEN.finditer(text):
            word = match.group()
            kind, means, fields = self._meanings.get(fold(word), _NO_MEANING)
            if kind not in "Vw":  # part of a phrase that was cut off, such as "but not"
                yield Word(kind, *match.span(), means, fields)
            near = len(word) > 3 and process.extractOne(fold(word), self._parts, scorer=fuzz.ratio, score_cutoff=85)
            yield Word("~" if near else _SYMBOLS.get(word, "w" if word.isalnum() else "."), *match.span())

    def _quantity(self, match: re.Match[str]) -> Word | None:
        """Find the fields that a number's unit fits; the word after a number that fits none is no unit."""
        said = Quantity.said(match)
        digit = match["number"][-1].isdigit()
        fields = []
        for field in self.numeric if said.unit else ():
            try:
                said.in_unit(field.unit, (field.name, *field.aliases) if digit else ())
                fields.append((field, said))
            except ValueError:
                continue
        if fields or (digit and self.dates and is_calendar_unit(said.unit)):
            return Word("N", *match.span(), said, tuple(fields))
        other_kind = is_unit(said.unit) and all(field.unit for field in self.numeric)  # "5 kg", where pages are counted
        if not digit or not self.numeric or other_kind:
            return None
        end = match.end("magnitude") if match["magnitude"] else match.end("number")
        end = len(match.string) - len(match.string[end:].lstrip(FILLER))
        return Word("N", match.start(), end, Quantity(said.number, said.magnitude, match["money"] or ""))


def _is_compound(text: str, start: int, end: int) -> bool:
    """Tell whether a word is a part of one such as "open-source" or "non-German"."""
    return bool(re.search(r"\w-$", text[:start]) or re.match(r"-\w", text[end:]))


def _is_period(text: str, start: int, end: int) -> bool:
    """Tell months and weekdays from words and names: "may", "March" and "Sunday" alone need a preposition before."""
    said = text[start:end].casefold().removeprefix("the ").strip()
    sure = not _MONTH_OR_DAY_ALONE.fullmatch(said) or said in ("today", "yesterday", "tomorrow")
    return sure or bool(_AFTER_CUE.search(text[max(0, start - 20) : start]) or _BEFORE_MONTH.match(text, end))


def _heads(contents: str) -> list[str]:
    """List the words for what is searched, out of a description of the collection."""
    return re.findall(r"\w+", re.split(r"\b(?:of|about|by|for|from|in|on|that|which|with)\b", contents)[0])


def _named_values(field: MetadataField) -> Iterator[tuple[str, Any]]:
    """
    List the names of a field's values, of those that are spelt alike each time the first.

    Short ones are words, like "de" and "it", unless in capitals, like "HR".
    """
    if field.type == "bool":
        yield from ((name, True) for name in (field.name, *field.aliases))
    for value, names in field.values.items():
        for name in names if field.type == "bool" else (value, *names):
            if len(name) > 2 or name.isupper():
                yield name, field.spellings[fold(name)][0]


def _forms(phrase: str) -> set[str]:
    """Make the singular and plural of a folded phrase."""
    if phrase.endswith("s"):
        return {phrase, phrase[:-1]} if len(phrase) > 3 else {phrase}
    plural = (
        phrase[:-1] + "ies" if phrase.endswith("y") else phrase + "es" if phrase[-2:] in ("sh", "ch") else phrase + "s"
    )
    return {phrase, plural}


def _any_of(phrases: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(set(map(fold, phrases)), key=len, reverse=True)
    spelled = (r"[\W_]+".join(map(re.escape, phrase.split())) for phrase in longest_first)
    return re.compile(rf"(?<!\w)(?:{'|'.join(spelled)})(?!\w)", re.IGNORECASE)
