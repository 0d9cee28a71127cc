"""Budgets of text: how long it is in the unit of the budget, and the part of a document that fits one."""

import copy
from dataclasses import replace
from typing import Literal

from haystack import Document

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.excerpts import excerpt
from haystack_adv_retrieval.core.rulers import CharacterRuler, Ruler, UnitRuler, token_starts, word_starts
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.models import load_tokenizer

LengthUnit = Literal["character", "word", "token"]


def ruler_of(text: str, unit: LengthUnit) -> Ruler:
    """
    Make a ruler for a text.

    :param text: The text.
    :param unit: What it counts; tokens are those of the default embedding model.
    :returns: The ruler.
    """
    if unit == "character":
        return CharacterRuler(text)
    starts = word_starts(text) if unit == "word" else token_starts(text, [Span(0, len(text))], load_tokenizer())
    return UnitRuler(starts, len(text))


def length_of(text: str, unit: LengthUnit) -> int:
    """
    Measure a text as a whole.

    :param text: The text.
    :param unit: What to count; characters are all of them, white space too.
    :returns: The number of units.
    """
    return len(text) if unit == "character" else ruler_of(text, unit).count(0, len(text))


def cut(document: Document, focus: Span, max_length: int, unit: LengthUnit) -> Document:
    """
    Cut a document to whole sentences around what matters in it.

    :param document: The document; it is not changed.
    :param focus: The part that matters, in positions of the content.
    :param max_length: The budget; at least 1.
    :param unit: Unit of the budget.
    :returns: A copy whose content fits; span and page are those of the new content.
    """
    text = document.content or ""
    span = excerpt(text, focus, max_length, ruler_of(text, unit))
    meta = copy.deepcopy(document.meta)
    if own := chunks.span_of(meta):
        meta |= {chunks.START: own.start + span.start, chunks.END: own.start + span.end}
        if chunks.PAGE in meta:
            meta[chunks.PAGE] += text.count("\f", 0, span.start)
    return replace(document, content=span.text(text), meta=meta)
