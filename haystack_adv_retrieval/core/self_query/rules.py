"""
Conditions that a question states in words that the schema makes unambiguous, found without a model.

A condition is read only where nothing around it says otherwise. What sounds like a condition and is not understood is
reported, so that a model can be asked instead.
"""

import re
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from haystack_adv_retrieval.core.self_query.conditions import CERTAINTY, FORMS, Condition, ConditionReader
from haystack_adv_retrieval.core.self_query.contexts import in_context
from haystack_adv_retrieval.core.self_query.filter_tree import Clause, Expression, Group
from haystack_adv_retrieval.core.self_query.words import Vocabulary


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


# In "high latency" or "French cooking" the value describes a thing; in "French chicken recipes", what is searched for,
# and a plural describes nothing: "policies apply".
_LONE_NOUN = re.compile(r"[w~]+(?![w~hV#])")


class _Reader:
    def __init__(self, question: str, vocabulary: Vocabulary, today: date) -> None:
        self.question, self.vocabulary, self.today = question, vocabulary, today
        self.words = vocabulary.words(question, today)
        self.kinds = in_context("".join(word.kind for word in self.words), question)
        self.conditions: list[Condition] = []

    def find_conditions(self) -> None:
        reader = ConditionReader(self.question, self.words, self.vocabulary, self.today)
        for form in FORMS:
            for match in form.finditer(self.kinds):
                condition = reader.read(match)
                if condition:
                    self.conditions.append(condition)
                    self._mark_read(condition)
                else:
                    self._mark(*match.span(), "?")
        self.conditions.sort(key=lambda condition: condition.start)

    def merge_sets(self) -> None:
        """Read values of one field side by side as a set: "German or French", "neither red nor blue"."""
        merged: list[Condition] = []
        for condition in self.conditions:
            if merged and (both := self._set_of(merged[-1], condition)):
                self._mark_read(both)
                merged[-1] = both
            else:
                merged.append(condition)
        self.conditions = merged

    def _set_of(self, one: Condition, other: Condition) -> Condition | None:
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
        return Condition(one.start, other.end, tree, one.field, values, one.negated, one.partly or other.partly)

    def join_alternatives(self) -> None:
        """Read what stands around "or" as alternatives: "Nordkap stoves or Pinewood tents"."""
        joined: list[Condition] = []
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
                joined.append(Condition(run[0].start, run[-1].end, tree, partly=partly))
                self._mark_read(joined[-1])
        self.conditions = joined

    def _runs(self) -> list[list[Condition]]:
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

    def _of_unclear_scope(self) -> list[Condition]:
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

    def _mark_read(self, condition: Condition) -> None:
        self._mark(condition.start, condition.end, "=" if condition.partly else "#")

    def _mark(self, start: int, end: int, mark: str) -> None:
        self.kinds = self.kinds[:start] + mark * (end - start) + self.kinds[end:]
