"""Documents on their way through the Compressor: what is kept of each, and what happened to them."""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from haystack import Document

from haystack_adv_retrieval.context.budgets import LengthUnit, length_of, ruler_of
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.excerpts import first_words
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.core.units import Unit
from haystack_adv_retrieval.llm.asking import Reply

_BREAK = re.compile(r"[\n\r\f]")
_PARAGRAPH_BREAK = re.compile(r"\n\s*\n|\f")
_UNKNOWN = np.empty(0)


class Text:
    """
    One document. Arrays have one entry a unit.

    Positions are those of its source; where its place there is not known, the text is its own source.

    :param document: The document; it is not changed.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.content = document.content or ""
        self.is_slice = chunks.is_slice(document.meta, document.content)
        method = document.meta.get(chunks.COMPRESSION)
        self.is_extract = method == "abstractive" or (chunks.KEPT_SPANS in document.meta and method != "none")
        start, span = document.meta.get(chunks.START), chunks.span_of(document.meta)
        is_exact = span.length == len(self.content) if span else chunks.END not in document.meta
        self.start = start if isinstance(start, int) and is_exact else 0
        own = f"document {document.id}"
        self.source = str(document.meta.get(chunks.SOURCE_ID, own) if self.start == start else own)
        self.units: list[Unit] = []
        self.vectors = _UNKNOWN  # one row a unit
        self.relevance = _UNKNOWN  # how well a unit answers by itself: a similarity, or what a ranker or model says
        self.scores = _UNKNOWN  # how well it answers in its surroundings, beside the others
        self.result: Document | None = None

    @property
    def sections(self) -> list[str]:
        """The heading that each unit is under."""
        above, sentences = str(self.document.meta.get(chunks.HEADINGS, "")), self.sentences
        return [above if unit.heading is None else sentences[unit.heading] for unit in self.units]

    @property
    def sentences(self) -> list[str]:
        """The texts of the units."""
        return [unit.span.text(self.content) for unit in self.units]

    def cut(self, index: int, max_length: int, unit: LengthUnit) -> None:
        """Cut a unit to its first words."""
        own = self.units[index]
        sentence = own.span.text(self.content)
        part = first_words(sentence, 0, max_length, ruler_of(sentence, unit))
        span = Span(own.span.start + part.start, own.span.start + part.end)
        self.units[index] = replace(own, span=span)

    def keep(self, indices: Sequence[int], separator: str, method: str, unit: LengthUnit) -> None:
        """Keep some of the units; all of the text, if it would not get shorter."""
        spans = [self.units[index].span for index in indices]
        parts = [spans[0].text(self.content)]
        for before, after in pairwise(spans):
            gap = self.content[before.end : after.start]
            parts += [joint(gap, separator) if gap.strip() else gap, after.text(self.content)]
        content = "".join(parts)
        if length_of(content, unit) > length_of(self.content, unit):
            self.keep_whole()
        else:
            kept = [[self.start + span.start, self.start + span.end] for span in spans]
            self.result = self._result(content, {chunks.KEPT_SPANS: kept, chunks.COMPRESSION: method})

    def keep_whole(self) -> None:
        """Leave the document as it is."""
        whole = [[self.start, self.start + len(self.content)]] if self.content else []
        meta = {} if self.is_extract else {chunks.KEPT_SPANS: whole, chunks.COMPRESSION: "none"}
        self.result = replace(self.document, meta=copy.deepcopy(self.document.meta) | meta)

    def summarize(self, summary: str) -> None:
        """Put a summary in place of the text."""
        self.result = self._result(summary, {chunks.COMPRESSION: "abstractive"})
        self.result.meta.pop(chunks.KEPT_SPANS, None)

    def _result(self, content: str, meta: dict[str, Any]) -> Document:
        meta = copy.deepcopy(self.document.meta) | meta
        return replace(self.document, content=content, meta=meta, embedding=None, sparse_embedding=None)


@dataclass
class Job:
    """
    One run.

    :param query: The question.
    :param query_embedding: Its vector, as soon as it is known.
    :param texts: What is not dropped.
    :param fallbacks: Why a document is not compressed as it was asked for, by its id.
    :param calls: How many calls of the chat model it took.
    :param input_tokens: Tokens read by the chat model.
    :param output_tokens: Tokens written by the chat model.
    """

    query: str
    query_embedding: list[float] | None
    texts: list[Text]
    fallbacks: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def rest(self) -> list[Text]:
        """The texts without a result."""
        return [text for text in self.texts if text.result is None]

    @property
    def results(self) -> list[Document]:
        """The results so far."""
        return [text.result for text in self.texts if text.result is not None]

    def fail(self, texts: Sequence[Text], reason: str) -> None:
        """Note why something else is done with texts than was asked for."""
        self.fallbacks |= {text.document.id: reason for text in texts}

    def count(self, reply: Reply[Any]) -> None:
        """Add up what a reply cost."""
        self.calls += reply.calls
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens


def joint(gap: str, separator: str) -> str:
    """
    Join two pieces of a text that do not stand side by side.

    :param gap: What is left out between them.
    :param separator: What marks that; on a line of its own if the pieces stand on different lines, and between blank
        lines if in different paragraphs.
    :returns: The joint.
    """
    if not _BREAK.search(gap):
        return separator
    breaks = "\n\n" if _PARAGRAPH_BREAK.search(gap) else "\n"
    mark = separator.strip()
    return breaks + mark + breaks if mark else breaks
