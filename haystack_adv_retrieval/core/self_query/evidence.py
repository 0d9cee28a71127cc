"""
Whether a question says what a model made of it.

A small model fills in what it expects: "tomato soup" becomes a main course, "low calorie" becomes 100 kcal, and "since
March" is the March that it was trained in. Such a guess hides answers, so a condition for which the model quotes words
has to be found in the question.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import date
from typing import Any

from rapidfuzz import fuzz

from haystack_adv_retrieval.core.filter_schema import FilterSchema, MetadataField, fold
from haystack_adv_retrieval.core.self_query.coercion import coerce
from haystack_adv_retrieval.core.self_query.filter_tree import Clause
from haystack_adv_retrieval.core.self_query.periods import find_periods, parse_period
from haystack_adv_retrieval.core.self_query.quantities import digits

_ALIKE = 75  # "Japan" and "Japanese"
_IDLE = {"with", "without", "and", "for", "the", "not"}  # in names such as "with meat"
# Words that show that a question is not in English, so that a value may be named by a translation.
_FOREIGN = {
    "de": "der das dem des und oder von mit ein eine im zu auf aus",
    "fr": "le la les du et ou pour avec dans un une",
    "es": "el los las del de para por",
    "it": "il gli di da che",
    "pt": "os um uma em",
    "nl": "het een voor op",
}
_FOREIGN_WORDS = {word for words in _FOREIGN.values() for word in words.split()}


def checked(
    clause: Clause, question: str, schema: FilterSchema, unexplained: Collection[str], today: date, threshold: float
) -> Clause | str:
    """
    Check a condition from a model against the question.

    :param clause: The condition.
    :param question: The question.
    :param schema: The fields.
    :param unexplained: What the rules left to explain, if they were tried; a condition has to explain a part of it.
    :param today: The day that relative dates are relative to.
    :param threshold: Likeness from which on a text counts as a misspelt value.
    :returns: The condition with a certainty: 0.8 if the question has the words of the value, 0.7 if the model quoted
        words of the question, else 0.5. If it was not asked, the reason why it is ignored.
    """
    said, quoted = _words(question), _words(clause.words)
    if not quoted <= said:
        return f"the question does not say {clause.words[:200]!r}"
    field = schema.find(clause.field)
    values = clause.value if isinstance(clause.value, list | tuple) else [clause.value]
    spoken = [words for value in values for words in map(_words, _names(field, value)) if words and words <= said]
    if unexplained and not _words(" ".join(unexplained)) & quoted.union(*spoken):
        return f"only {', '.join(unexplained)} was left to explain"
    if field and quoted and not _is_said(field, values, question, said, today):
        return f"the question does not name such a value of {field.name!r}"
    if field and len(values) > 1 and not all(_is_known(field, value, said, today, threshold) for value in values):
        return f"the question also names a value that {field.name!r} does not have"
    if field and quoted and field.type == "date":
        clause = replace(clause, value=_by_the_clock(clause, today))
    return replace(clause, certainty=0.8 if spoken else 0.7 if quoted else 0.5)


def _is_said(field: MetadataField, values: Collection[Any], question: str, said: set[str], today: date) -> bool:
    """Tell whether a question in English names a value of an enumeration, or alike; or any number or time at all."""
    if said & _FOREIGN_WORDS or not question.isascii():
        return True
    if field.type in ("int", "float", "date"):
        text = digits(question)
        return 0 in values or any(letter.isdigit() for letter in text) or any(find_periods(text, today))
    known = set(field.spellings) if field.type == "bool" else {n for value in values for n in _names(field, value)}
    return not field.values or any(
        _alike(part, word) for name in known for part in _words(name) - _IDLE for word in said
    )


def _is_known(field: MetadataField, value: Any, said: set[str], today: date, threshold: float) -> bool:
    """Tell whether a field can have a value; one that the question does not say is the model's, and not asked."""
    try:
        coerce(field, value, today, threshold)
    except ValueError:
        return not (isinstance(value, str) and _words(value) <= said)
    return True


def _by_the_clock(clause: Clause, today: date) -> Any:
    """Find the period in the words that the model quotes, if its own value is nowhere near."""
    periods = [period for _, _, period in find_periods(clause.words, today)]
    if len(periods) != 1 or not isinstance(clause.value, str):
        return clause.value
    try:
        meant = parse_period(clause.value, today)
    except ValueError:
        return periods[0]
    return clause.value if meant.start <= periods[0].end and periods[0].start <= meant.end else periods[0]


def _names(field: MetadataField | None, value: Any) -> list[str]:
    """List the value and all its names in the field, folded."""
    folded = fold(str(value)) if isinstance(value, str | int | float) else ""
    same = field.spellings if field else {}
    return [folded, *(name for name, stands_for in same.items() if folded in same and stands_for == same[folded])]


def _alike(one: str, other: str) -> bool:
    return (
        one == other or (len(one) > 2 and fuzz.ratio(one, other) >= _ALIKE) or (len(one) > 3 and one[:4] == other[:4])
    )


def _words(text: str) -> set[str]:
    """List the words of a text, folded and without a plural s."""
    return {word.removesuffix("s") for word in fold(text).split()}
