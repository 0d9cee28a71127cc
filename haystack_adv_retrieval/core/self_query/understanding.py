"""What a question asks for: a text to search for and conditions, by the rules or from a model's reply."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from haystack_adv_retrieval.core.filter_schema import FilterSchema
from haystack_adv_retrieval.core.self_query.evidence import checked
from haystack_adv_retrieval.core.self_query.filter_repair import Note, repair
from haystack_adv_retrieval.core.self_query.filter_tree import (
    Clause,
    Expression,
    Group,
    emit,
    parts_by_field,
    plain,
    read_filter,
    with_clauses,
)
from haystack_adv_retrieval.core.self_query.rules import read_question
from haystack_adv_retrieval.core.self_query.words import Vocabulary

MAX_LENGTH = 2000  # characters of a question that the rules read


@dataclass(frozen=True)
class Understanding:
    """
    What was made of a question.

    :param method: By what: "rules", "llm", "rules+llm", or "none" if nothing was understood.
    :param search: The text to search for.
    :param tree: The conditions, for `emit`; None if there are none.
    :param notes: What was coerced, repaired, dropped and ignored.
    :param unexplained: Words that sound like conditions and that the rules do not explain.
    :param failure: Why the model could not be used.
    """

    method: Literal["rules", "llm", "rules+llm", "none"]
    search: str
    tree: Expression | None = None
    notes: tuple[Note, ...] = ()
    unexplained: tuple[str, ...] = ()
    failure: str | None = None

    def report(self) -> dict[str, Any]:
        """Write it as JSON-ready data."""
        notes: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for note in self.notes:
            notes[note.kind].append({"condition": note.said, "reason": note.reason})
        return {
            "method": self.method,
            "search": self.search,
            "understood": [{"filters": emit(part), "certainty": sure} for sure, part in parts_by_field(self.tree)],
            "coerced": notes["coerced"],
            "repaired": notes["repaired"],
            "dropped": notes["dropped"],
            "ignored": notes["ignored"],
            "unexplained": list(self.unexplained),
            "failure": self.failure,
        }


def understand_by_rules(question: str, vocabulary: Vocabulary, today: date, threshold: float) -> Understanding:
    """
    Read a question without a model.

    :param question: The question.
    :param vocabulary: Of the schema.
    :param today: The day that relative dates are relative to.
    :param threshold: Likeness from which on a text counts as a misspelt value.
    :returns: What was understood.
    """
    if len(question) > MAX_LENGTH:
        return Understanding("rules", question, unexplained=(f"{question[:50]}...",))
    reading = read_question(question, vocabulary, today)
    tree, notes = repair(reading.tree, vocabulary.schema, today, threshold)
    return Understanding("rules", reading.search, tree, tuple(notes), reading.unexplained)


def understand_reply(
    question: str,
    filters: Any,
    search: str,
    schema: FilterSchema,
    today: date,
    threshold: float,
    rules: Understanding | None = None,
) -> Understanding:
    """
    Read what a model made of a question.

    If the rules were tried before, their conditions stay, and the model's have to be about what they left unexplained:
    so a weak model can add a condition where one is missing, and cannot spoil those that are sure.

    :param question: The question.
    :param filters: The filter of the reply, parsed but otherwise untouched.
    :param search: The text to search for; empty means that of the rules, else the question.
    :param schema: The fields that may be used.
    :param today: The day that relative dates are relative to.
    :param threshold: Likeness from which on a text counts as a misspelt value.
    :param rules: What the rules understood.
    :returns: What was understood.
    """
    unexplained = rules.unexplained if rules else ()
    notes = list(rules.notes) if rules else []

    def asked(clause: Clause) -> Expression:
        kept = checked(clause, question, schema, unexplained, today, threshold)
        if isinstance(kept, Clause):
            if kept.value != clause.value:
                notes.append(Note("coerced", plain(clause), f"read as {clause.words!r}"))
            return kept
        notes.append(Note("ignored", plain(clause), kept))
        return Group("AND", ())

    said = with_clauses(read_filter(filters), asked)
    if rules and rules.tree:
        said = Group("AND", (rules.tree, said))
    tree, repairs = repair(said, schema, today, threshold)
    search = search or (rules.search if rules else question)
    return Understanding("rules+llm" if rules else "llm", search, tree, (*notes, *repairs), unexplained)
