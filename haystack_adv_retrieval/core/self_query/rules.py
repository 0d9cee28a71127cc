"""
Conditions that a question states in words that the schema makes unambiguous, found without a model.

A condition is read only where nothing around it says otherwise. What sounds like a condition and is not understood is
reported, so that a model can be asked instead.
"""

import re
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import Any

from haystack_adv_retrieval.core.filter_schema import NEGATED, MetadataField
from haystack_adv_retrieval.core.self_query.contexts import in_context
from haystack_adv_retrieval.core.self_query.filter_tree import Clause, Expression, Group
from haystack_adv_retrieval.core.self_query.periods import time_ago
from haystack_adv_retrieval.core.self_query.quantities import Quantity
from haystack_adv_retrieval.core.self_query.words import Vocabulary, Word

CERTAINTY = 0.95  # of a condition in words; one such as `year>=2020` is certain


@dataclass(frozen=True)
class QueryReading:
    """
    What the rules understood of a question.

    :param tree: The conditions.
    :param search: What is left to search for; the question itself if that is nothing.
    :param unexplained: Words that sound like a condition and were not understood.
    """

    tree: Expression
    search: str
    unexplained: tuple[str, ...]


def read_question(question: str, vocabulary: Vocabulary, today: date) -> QueryReading:
    """
    Read the conditions of a question.

    :param question: The question, in English. In other languages only what is spelt alike is found.
    :param vocabulary: Of the schema.
    :param today: The day that relative dates are relative to.
    :returns: What was understood.
    """
    reader = _Reader(question, vocabulary, today)
    reader.find_conditions()
    reader.merge_sets()
    reader.join_alternatives()
    reader.give_up_doubtful()
    trees = tuple(condition.tree for condition in reader.conditions)
    return QueryReading(Group("AND", trees), reader.search_text() if trees else question, reader.unexplained())


@dataclass(frozen=True)
class _Condition:
    """
    What the words from `start` to `end` (exclusive) ask.

    `field` and `values` are set if it is (not) to be equal to them. `partly` says that the condition is wider than the
    words, as the year 2023 is for "Q3 2023", so that the words are worth searching for, too.
    """

    start: int
    end: int
    tree: Expression
    field: MetadataField | None = None
    values: tuple[Any, ...] = ()
    negated: bool = False
    partly: bool = False


_YEAR = re.compile(r"\d{4}")
# In "high latency" or "French cooking" the value describes a thing; in "French chicken recipes", what is searched for,
# and a plural describes nothing: "policies apply".
_LONE_NOUN = re.compile(r"[w~]+(?![w~hV#])")

_GAP = "[shiu]*"
# How conditions are said, the longest first: "from 2 to 4 kg", "older than 3 years", "rated at least 4", "2 or more".
_FORMS = [
    re.compile(
        rf"(?:(?P<not>n){_GAP})?(?:(?P<field>F){_GAP})?(?:(?P<isnt>n){_GAP})?(?P<body>{form})(?:{_GAP}(?P<after>F))?"
    )
    for form in (
        r"(?P<explicit>E)",
        r"(?P<between>b)s*(?P<low>[PN])s*[ta]s*(?P<high>[PN])",
        r"f?s*(?P<low>[PN])s*ts*(?P<high>[PN])",
        r"(?P<age>g)s*(?P<low>N)",
        r"(?P<order>[cyt])s*(?P<low>[PN])",
        r"f?s*(?P<low>[PN])s*(?P<order>p)",
        r"(?P<from>f)?s*(?P<low>[PN])",
        r"(?P<value>V)",
    )
]


class _Reader:
    def __init__(self, question: str, vocabulary: Vocabulary, today: date) -> None:
        self.question, self.vocabulary, self.today = question, vocabulary, today
        self.words = vocabulary.words(question, today)
        self.kinds = in_context("".join(word.kind for word in self.words), question)
        self.conditions: list[_Condition] = []

    def find_conditions(self) -> None:
        for form in _FORMS:
            for match in form.finditer(self.kinds):
                condition = self._condition(match)
                if condition:
                    self.conditions.append(condition)
                    self._mark_read(condition)
                else:
                    self._mark(*match.span(), "?")
        self.conditions.sort(key=lambda condition: condition.start)

    def _condition(self, match: re.Match[str]) -> _Condition | None:
        said = {name: self.words[match.start(name)] for name, kind in match.groupdict().items() if kind}
        negated = ("not" in said) != ("isnt" in said)
        ways = [("field", match.end("body"))] if "field" in said else [("after", match.end()), ("", match.end("body"))]
        for place, end in ways:
            if not place or place in said:
                try:
                    field, tree = self._meaning(said, said[place].means if place else None)
                except ValueError:
                    continue
                partly = field in self.vocabulary.years and any(
                    word.kind == "P" and not word.means.years for word in said.values()
                )
                if partly and negated:
                    continue
                read = _Condition(match.start(), end, tree, negated=negated, partly=partly)
                if isinstance(tree, Group):
                    return replace(read, tree=Group("NOT", (tree,))) if negated else read
                if tree.operator == "==":
                    read = replace(read, field=field, values=(tree.value,))
                return replace(read, tree=replace(tree, operator=NEGATED[tree.operator])) if negated else read
        return None

    def _meaning(self, said: dict[str, Word], named: MetadataField | None) -> tuple[MetadataField, Clause | Group]:
        """Put a field and its values together, or raise ValueError if it is not clear which they are."""
        if "explicit" in said:
            field, order, text = said["explicit"].means
            several = text.split(",") if field.values and "," in text else None
            return field, Clause(
                field.name, {"==": "in", "!=": "not in"}.get(order, order) if several else order, several or text
            )
        if "value" in said:
            ((field, value),) = [(field, value) for field, value in said["value"].fields if named in (None, field)]
            return field, Clause(field.name, "==", value, CERTAINTY)
        if "age" in said:
            (field,) = [named] if named else self.vocabulary.dates
            number, unit = said["low"].means.number, said["low"].means.unit
            return field, Clause(field.name, said["age"].means, time_ago(number, unit, self.today), CERTAINTY)
        if "high" in said:
            field, values = self._bound([said["low"], said["high"]], named)
            ends = zip((">=", "<="), values, strict=True)
            return field, Group("AND", tuple(Clause(field.name, order, value, CERTAINTY) for order, value in ends))
        field, (value,) = self._bound([said["low"]], named)
        order = ">=" if "from" in said and said["low"].kind == "N" else "=="
        order = said["order"].means if "order" in said else order
        if order not in NEGATED:
            raise ValueError("it is no comparison")
        return field, Clause(field.name, order, value, CERTAINTY)

    def _bound(self, words: list[Word], named: MetadataField | None) -> tuple[MetadataField, list[Any]]:
        """Find the field of periods or quantities, and their values there."""
        if all(word.kind == "P" for word in words) and named not in self.vocabulary.numeric:
            by_year = all(word.means.years or (not self.vocabulary.dates and self._has_year(word)) for word in words)
            fields = self.vocabulary.years if by_year and len(self.vocabulary.years) == 1 else self.vocabulary.dates
            (field,) = [named] if named else fields
            return field, [word.means for word in words]
        quantities = [self._quantity(word) for word in words]
        last = quantities[-1]
        fitting = [field for field, _ in words[-1].fields]
        if named in self.vocabulary.numeric and not last.unit:
            fitting = [named]
        (field,) = [field for field in fitting if named in (None, field)]
        complete = [q if q.unit else replace(last, number=q.number) for q in quantities]
        return field, [quantity.in_unit(field.unit, (field.name, *field.aliases)) for quantity in complete]

    def _has_year(self, word: Word) -> bool:
        return bool(_YEAR.search(self.question, word.start, word.end))

    def _quantity(self, word: Word) -> Quantity:
        """Take a period for the number that it looks like: "price under 2000"."""
        return word.means if word.kind == "N" else Quantity(float(self.question[word.start : word.end]))

    def merge_sets(self) -> None:
        """Read values of one field side by side as a set: "German or French", "neither red nor blue"."""
        merged: list[_Condition] = []
        for condition in self.conditions:
            if merged and (both := self._set_of(merged[-1], condition)):
                self._mark_read(both)
                merged[-1] = both
            else:
                merged.append(condition)
        self.conditions = merged

    def _set_of(self, one: _Condition, other: _Condition) -> _Condition | None:
        gap = self.kinds[one.end : other.start]
        if one.negated and not other.negated and not re.fullmatch(",|.*[ao].*", gap):  # "no memos, only contracts"
            return None
        linked = re.search("[,ao]", gap) or self.words[other.end - 1].kind == "V"
        if not one.field or one.field is not other.field or not linked or not re.fullmatch("[shiu,ao]*", gap):
            return None
        if other.negated > one.negated or (one.field.type == "list[str]" and "o" not in gap and not one.negated):
            return None
        values = one.values + other.values
        tree = Clause(one.field.name, "not in" if one.negated else "in", values, CERTAINTY)
        return _Condition(one.start, other.end, tree, one.field, values, one.negated, one.partly or other.partly)

    def join_alternatives(self) -> None:
        """Read what stands around "or" as alternatives: "Nordkap stoves or Pinewood tents"."""
        joined: list[_Condition] = []
        for run in self._runs():
            alternatives: list[list[Expression]] = [[]]
            position = run[0].start
            for condition in run:
                if "o" in self.kinds[position : condition.start]:
                    alternatives.append([])
                alternatives[-1].append(condition.tree)
                position = condition.end
            if len(alternatives) == 1:
                joined += run
            elif any(condition.negated for condition in run):
                self._mark(run[0].start, run[-1].end, "?")
            else:
                tree = Group("OR", tuple(Group("AND", tuple(trees)) for trees in alternatives))
                partly = any(condition.partly for condition in run)
                joined.append(_Condition(run[0].start, run[-1].end, tree, partly=partly))
                self._mark_read(joined[-1])
        self.conditions = joined

    def _runs(self) -> list[list[_Condition]]:
        """Group conditions with nothing but function words and "or" between them."""
        runs = [self.conditions[:1]] if self.conditions else []
        for one, other in pairwise(self.conditions):
            if re.fullmatch("[shiuf]*(?:o[shiuf]*)?", self.kinds[one.end : other.start]):
                runs[-1].append(other)
            else:
                runs.append([other])
        return runs

    def give_up_doubtful(self) -> None:
        """Drop conditions next to a word that may change what they mean, and all in a question in another language."""
        kept = []
        foreign = "X" in self.kinds
        unclear = self._of_unclear_scope()
        for condition in reversed(self.conditions):
            before = self.kinds[: condition.start].rstrip("shiuf")
            left = "n" if re.search("n[shi]*w$", before) else before[-1:]  # "not too difficult"
            lost = range(len(before.rstrip("?shiu")), len(before)) if left == "?" else ()
            left = "n" if any(self.words[index].kind == "n" for index in lost) else left  # "except the ones by"
            right = self.kinds[condition.end :].lstrip("shiu")[:1]
            vague = left == "A" and self.words[condition.start].kind in "PN"
            last = self.words[condition.end - 1]
            singular = last.kind == "V" and not self.question[: last.end].endswith("s")
            describes = singular and _LONE_NOUN.match(self._given_up_as_words(condition.end))
            if (
                foreign
                or vague
                or describes
                or condition in unclear
                or (left and left in "onxcgy")
                or (right and right in "op")
            ):
                self._mark(condition.start, condition.end, "?")
            else:
                kept.append(condition)
        self.conditions = kept[::-1]

    def _given_up_as_words(self, start: int) -> str:
        """Take the kinds from a word on, values that were given up as any other words."""
        pairs = zip(self.kinds[start:], self.words[start:], strict=True)
        return "".join("w" if kind == "?" and word.kind == "V" else kind for kind, word in pairs)

    def _of_unclear_scope(self) -> list[_Condition]:
        """Find conditions such as both of "except memos from 2029": which of all is left out is not clear."""
        unclear = []
        for one, other in pairwise(self.conditions):
            excepts = any(word.means == "except" for word in self.words[one.start : one.end])
            if one.negated and excepts and re.fullmatch("[shiuf]*", self.kinds[one.end : other.start]):
                unclear += [one, other]
        return unclear

    def search_text(self) -> str:
        kept = self.kinds
        for idle in ("[siuf]+(?=#)", "^[shiuAftaoy,.#]+", "[shiuAftaoy,.#]+$"):
            kept = re.sub(idle, lambda match: "#" * len(match.group()), kept)
        runs = [self.words[run.start() : run.end()] for run in re.finditer("[^#]+", kept)]
        return " ".join(self.question[run[0].start : run[-1].end] for run in runs) or self.question

    def unexplained(self) -> tuple[str, ...]:
        return tuple(
            self.question[word.start : word.end]
            for word, kind in zip(self.words, self.kinds, strict=True)
            if kind in "?~XcpgbnyNPVFE" or (kind == "t" and word.means)
        )

    def _mark_read(self, condition: _Condition) -> None:
        self._mark(condition.start, condition.end, "=" if condition.partly else "#")

    def _mark(self, start: int, end: int, mark: str) -> None:
        self.kinds = self.kinds[:start] + mark * (end - start) + self.kinds[end:]
