"""How one condition is said in words, and what it means."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from haystack_adv_retrieval.core.filter_schema import NEGATED, MetadataField
from haystack_adv_retrieval.core.self_query.filter_tree import Clause, Expression, Group
from haystack_adv_retrieval.core.self_query.periods import time_ago
from haystack_adv_retrieval.core.self_query.quantities import Quantity
from haystack_adv_retrieval.core.self_query.words import Vocabulary, Word

CERTAINTY = 0.95  # of a condition in words; one such as `year>=2020` is certain


@dataclass(frozen=True)
class Condition:
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
_GAP = "[shiu]*"
# How conditions are said, the longest first: "from 2 to 4 kg", "older than 3 years", "rated at least 4", "2 or more".
FORMS = [
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


@dataclass(frozen=True)
class ConditionReader:
    """
    Tells what the conditions of a question mean.

    :param question: The question.
    :param words: Its words.
    :param vocabulary: Of the schema.
    :param today: The day that relative dates are relative to.
    """

    question: str
    words: Sequence[Word]
    vocabulary: Vocabulary
    today: date

    def read(self, match: re.Match[str]) -> Condition | None:
        """
        Read a condition.

        :param match: Of one of `FORMS`, over the kinds of the words.
        :returns: The condition, or None if it is not clear what is meant.
        """
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
                read = Condition(match.start(), end, tree, negated=negated, partly=partly)
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
