import copy
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from haystack import Document, component, default_from_dict, default_to_dict, logging
from haystack.components.embedders.types import DocumentEmbedder, TextEmbedder
from haystack.components.generators.chat.types import ChatGenerator
from haystack.core.serialization import component_to_dict
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.budgets import LengthUnit, length_of
from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.components.leaf_embedder import LeafEmbedder
from haystack_adv_retrieval.components.query_embedder import QueryEmbedder
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.grounding import unsupported
from haystack_adv_retrieval.core.labels import read_labels
from haystack_adv_retrieval.core.selection import Candidate, select, smooth
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.core.units import Unit, find_units
from haystack_adv_retrieval.llm import Reply, ask_many, helper_model, prepare, read_text, release
from haystack_adv_retrieval.prompts import Prompt, harmless, quoted
from haystack_adv_retrieval.results import check_at_least, check_choice
from haystack_adv_retrieval.stores import read_by_ids

logger = logging.getLogger(__name__)

Method = Literal["index", "embedding", "reranker", "llm", "abstractive"]

NO_OUTPUT = "NO_OUTPUT"

SELECT_PROMPT = """\
Which of the numbered sentences help to answer the question? Reply with their numbers alone, separated by commas.
Reply 0 if none does.

Question: {{ query }}

{{ sentences }}"""

SUMMARY_PROMPT = """\
Summarise what the passage says about the question, in as few sentences as possible. Use its own words; keep names,
numbers and conditions exactly. Add nothing. If it says nothing about the question, reply NO_OUTPUT.

Question: {{ query }}

{{ passage }}"""


_NESTED = ("text_embedder", "document_embedder", "ranker", "chat_generator")


@component
class Compressor:
    """
    Keeps what answers the question, and drops the padding around it.

    Large parents hold the answer and much else. The extractive methods keep whole sentences, exactly as they stand in
    the source, under one budget over all documents, and say which spans they are. A kept sentence brings along what it
    cannot be understood without: its heading, the header of its table, the lead-in of its list, the sentence it leans
    on.

    - `"index"`: sentences are scored by the vectors of the leaves in the index, which were searched already: one
      look-up and no model call. Documents that the index does not know are scored as by `"embedding"`.
    - `"embedding"`: all sentences of all documents are embedded in one batch.
    - `"reranker"`: a ranker, such as a cross-encoder, scores the sentences.
    - `"llm"`: a chat model is shown numbered sentences and replies with numbers, so it cannot change a word.
    - `"abstractive"`: a chat model summarises each document for the question. A summary with a number, a name or a
      quotation that its source lacks is replaced by the extract of the method `"index"`.

    ### Usage example
    ```python
    from haystack import Document
    from haystack_adv_retrieval import Compressor

    page = Document(content="Ferns like shade. Refunds take 14 days. The weir was built in 1911.")
    compressor = Compressor(method="embedding", top_k=1)
    print(compressor.run(query="How long do refunds take?", documents=[page])["documents"][0].content)
    ```
    """

    def __init__(
        self,
        method: Method = "index",
        *,
        document_store: DocumentStore | None = None,
        text_embedder: TextEmbedder | None = None,
        document_embedder: DocumentEmbedder | None = None,
        ranker: Any = None,
        chat_generator: ChatGenerator | None = None,
        max_length: int | None = None,
        length_unit: LengthUnit = "character",
        threshold: float | None = None,
        top_k: int | None = None,
        min_sentences: int = 1,
        neighbor_weight: float = 0.3,
        text_weight: float = 0.1,
        context_sentences: int = 0,
        keep_antecedents: bool = True,
        separator: str = " … ",
        drop_irrelevant: bool = True,
        min_length: int = 0,
        per_document: bool = True,
        language: str = "en",
        prompt: str | None = None,
        max_workers: int = 4,
        timeout: float | None = 60.0,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create a Compressor.

        :param method: `"index"`, `"embedding"`, `"reranker"`, `"llm"` or `"abstractive"`.
        :param document_store: The index with the leaves; needed by `"index"`.
        :param text_embedder: Embeds the query where no `query_embedding` is given. None is `QueryEmbedder()`.
        :param document_embedder: Embeds sentences. None is `LeafEmbedder()`.
        :param ranker: A component with `run(query, documents)` that gives documents with scores back; needed by
            `"reranker"`.
        :param chat_generator: The model of `"llm"` and `"abstractive"`. None is the default model, see
            `haystack_adv_retrieval.llm.helper_model`.
        :param max_length: Budget over all documents together. A budget that is smaller than the best sentence is
            exceeded by that sentence. Documents that fit it together are left as they are, unless `threshold` or
            `top_k` is set.
        :param length_unit: Unit of lengths: `"character"`, `"word"` or `"token"`.
        :param threshold: The lowest score of a kept sentence, itself included. Scores are cosine similarities, or those
            of the ranker, after smoothing. Works together with `top_k`.
        :param top_k: How many sentences to keep at most, over all documents.
        :param min_sentences: How many sentences to keep of a kept document, if the budget allows.
        :param neighbor_weight: Weight, in [0, 1], of a sentence's neighbours in its score.
        :param text_weight: Weight of the document's mean in a sentence's score; both weights add up to 1 at most.
        :param context_sentences: How many neighbours on each side of a kept sentence are kept too, if the budget
            allows.
        :param keep_antecedents: Keep what a kept sentence needs to be understood.
        :param separator: Put where something was left out. Between paragraphs the paragraph break stays.
        :param drop_irrelevant: Drop documents of which nothing is kept; else the best sentence of each is kept.
        :param min_length: Documents that are shorter are left as they are.
        :param per_document: `"abstractive"`: one summary per document; else one over all of them.
        :param language: ISO 639 code of the documents' language.
        :param prompt: Jinja template instead of `SELECT_PROMPT` (has to use `query` and `sentences`) or
            `SUMMARY_PROMPT` (`query` and `passage`).
        :param max_workers: How many documents the model reads at the same time.
        :param timeout: Seconds for one question to the model; None for no limit.
        :param raise_on_failure: Raise if a model or the store fails. Else the documents it fails for are kept whole.
        :raises ValueError: If a parameter is out of its range, or one that the method needs is missing.
        """
        check_choice("method", method, Method)
        check_choice("length_unit", length_unit, LengthUnit)
        check_at_least(1, max_length=max_length, top_k=top_k, min_sentences=min_sentences, max_workers=max_workers)
        check_at_least(0, context_sentences=context_sentences, min_length=min_length)
        if min(neighbor_weight, text_weight) < 0 or neighbor_weight + text_weight > 1:
            raise ValueError(
                f"neighbor_weight and text_weight must be in [0, 1] and add up to 1 at most, got {neighbor_weight!r} "
                f"and {text_weight!r}"
            )
        if method == "index" and document_store is None:
            raise ValueError("document_store is needed by the method 'index', got None")
        if method == "reranker" and ranker is None:
            raise ValueError("ranker is needed by the method 'reranker', got None")
        self.method = method
        self.document_store = document_store
        self.text_embedder = text_embedder
        self.document_embedder = document_embedder
        self.ranker = ranker
        self.chat_generator = chat_generator
        self.max_length = max_length
        self.length_unit = length_unit
        self.threshold = None if threshold is None else float(threshold)
        self.top_k = top_k
        self.min_sentences = min_sentences
        self.neighbor_weight = float(neighbor_weight)
        self.text_weight = float(text_weight)
        self.context_sentences = context_sentences
        self.keep_antecedents = keep_antecedents
        self.separator = separator
        self.drop_irrelevant = drop_irrelevant
        self.min_length = min_length
        self.per_document = per_document
        self.language = language
        self.prompt = prompt
        self.max_workers = max_workers
        self.timeout = timeout
        self.raise_on_failure = raise_on_failure
        asks = method in ("llm", "abstractive")
        template, variable = (SELECT_PROMPT, "sentences") if method == "llm" else (SUMMARY_PROMPT, "passage")
        self._prompt = Prompt(prompt or template, {"query", variable})
        self._model: Any = helper_model(chat_generator) if asks else None
        self._text_embedder: Any = text_embedder or QueryEmbedder()
        self._document_embedder: Any = document_embedder or LeafEmbedder()

    def to_dict(self) -> dict[str, Any]:
        """Serialize the component."""
        nested = {name: getattr(self, name) for name in _NESTED}
        parts = {name: value and component_to_dict(value, name) for name, value in nested.items()}
        names = [name for name in inspect.signature(type(self).__init__).parameters if name not in ("self", *_NESTED)]
        return default_to_dict(
            self,
            **parts,
            **{name: getattr(self, name) for name in names},
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Compressor":
        """Deserialize the component."""
        return default_from_dict(cls, data)

    def warm_up(self) -> None:
        """Load the models that the method is sure to need."""
        drive(self._lifecycle("warm_up"))

    async def warm_up_async(self) -> None:
        """Load the models that the method is sure to need, asynchronously."""
        await drive_async(self._lifecycle("warm_up"))

    def close(self) -> None:
        """Close the models."""
        drive(self._lifecycle("close"))

    async def close_async(self) -> None:
        """Close the models, asynchronously."""
        await drive_async(self._lifecycle("close"))

    def _lifecycle(self, method: str) -> Steps[None]:
        if self._model is not None:
            yield from (prepare if method == "warm_up" else release)(self._model)
        used = {"embedding": [self._text_embedder, self._document_embedder], "reranker": [self.ranker]}
        for part in used.get(self.method, []):
            if hasattr(part, method):
                yield Call(part, method)

    @component.output_types(documents=list[Document], report=dict[str, Any])
    def run(
        self,
        query: str,
        documents: list[Document],
        query_embedding: list[float] | None = None,
        max_length: int | None = None,
        threshold: float | None = None,
        top_k: int | None = None,
    ) -> dict[str, Any]:
        """
        Compress documents.

        :param query: The question.
        :param documents: What was retrieved. A document without text, or one that is an extract already, is returned as
            it is.
        :param query_embedding: The question's vector, so that it need not be embedded again.
        :param max_length: Overrides the value of init.
        :param threshold: Overrides the value of init.
        :param top_k: Overrides the value of init.
        :returns: `documents`: in their order, with their ids, scores and metadata; `meta["kept_spans"]` holds
            `[start, end]` of what was kept, in positions of the source (of the text, for documents without a span), and
            `meta["compression"]` the method, `"none"` for a document that was left as it is. `report`: `kept` and
            `given` characters, `fallbacks` (reason by document id), `calls`, `input_tokens`, `output_tokens`.
        :raises RuntimeError: If a model or the store fails and `raise_on_failure` is set.
        """
        settings = self._settings(max_length, threshold, top_k)
        return drive(self._compress(query, documents, query_embedding, settings))

    @component.output_types(documents=list[Document], report=dict[str, Any])
    async def run_async(
        self,
        query: str,
        documents: list[Document],
        query_embedding: list[float] | None = None,
        max_length: int | None = None,
        threshold: float | None = None,
        top_k: int | None = None,
    ) -> dict[str, Any]:
        """
        Compress documents, asynchronously.

        :param query: As for `run`.
        :param documents: As for `run`.
        :param query_embedding: As for `run`.
        :param max_length: As for `run`.
        :param threshold: As for `run`.
        :param top_k: As for `run`.
        :returns: As `run`.
        :raises RuntimeError: As `run`.
        """
        settings = self._settings(max_length, threshold, top_k)
        return await drive_async(self._compress(query, documents, query_embedding, settings))

    def _settings(self, max_length: int | None, threshold: float | None, top_k: int | None) -> "_Limits":
        check_at_least(1, max_length=max_length, top_k=top_k)
        return _Limits(
            self.max_length if max_length is None else max_length,
            self.threshold if threshold is None else threshold,
            self.top_k if top_k is None else top_k,
        )

    def _compress(
        self, query: str, documents: list[Document], query_embedding: list[float] | None, limits: "_Limits"
    ) -> Steps[dict[str, Any]]:
        job = _Job(query, query_embedding, [_Text(document) for document in documents])
        if self._model is not None and job.texts:
            yield from prepare(self._model)
        given = sum(len(text.content) for text in job.texts)
        if self.method == "abstractive":
            yield from self._summarize(job)
        rest = [text for text in job.texts if text.result is None]
        if rest:
            yield from self._extract(rest, job, limits)
        compressed = [text.result for text in job.texts if text.result is not None]
        if job.fallbacks:
            logger.warning(
                "Compressor fell back for {count} documents, such as: {reason}",
                count=len(job.fallbacks),
                reason=next(iter(job.fallbacks.values())),
            )
        kept = sum(len(document.content or "") for document in compressed)
        return {"documents": compressed, "report": {"given": given, "kept": kept, **job.report()}}

    def _extract(self, texts: list["_Text"], job: "_Job", limits: "_Limits") -> Steps[None]:
        """Keep sentences of texts; what is left without a result is dropped."""
        ruler = self.length_unit
        left = limits.max_length
        open_ended = limits.threshold is None and limits.top_k is None and self.method != "llm"
        fits = left is None or sum(length_of(text.content, ruler) for text in texts) <= left
        long: list[_Text] = []
        for text in texts:
            is_short = len(text.content) < self.min_length or not text.content.strip()
            if is_short or not text.is_plain or (open_ended and fits):
                text.keep_whole()
                left = None if left is None else max(1, left - length_of(text.content, ruler))
            else:
                text.units = find_units(text.content, self.language)
                long.append(text)
        if not long:
            return
        scores = yield from self._score(long, job)
        threshold = 0.5 if self.method == "llm" else limits.threshold
        candidates: list[Candidate] = []
        best: list[int] = []
        places: list[tuple[_Text, int]] = []
        for number, (text, own) in enumerate(zip(long, scores, strict=True)):
            if own is None:  # nobody could judge it
                text.keep_whole()
                continue
            if self.method != "llm":
                own = smooth(own, self.neighbor_weight, self.text_weight)  # noqa: PLW2901
            first = len(candidates)
            for index, unit in enumerate(text.units):
                needs = tuple(first + need for need in unit.needs) if self.keep_antecedents else ()
                length = length_of(unit.span.text(text.content), ruler)
                length += len(self.separator) if ruler == "character" else 0
                candidates.append(Candidate(number, float(own[index]), length, needs))
                places.append((text, index))
            if not self.drop_irrelevant:
                best.append(first + int(np.argmax(own)))
        chosen = select(
            candidates,
            max_length=left,
            threshold=threshold,
            top_k=limits.top_k,
            min_sentences=self.min_sentences,
            context_sentences=self.context_sentences,
            first=best,
        )
        kept: dict[int, list[int]] = {}
        for index in chosen:
            kept.setdefault(candidates[index].text, []).append(places[index][1])
        name = "index" if self.method == "abstractive" else self.method
        for number, units in kept.items():
            long[number].keep(units, self.separator, name)

    def _score(self, texts: list["_Text"], job: "_Job") -> Steps[list[np.ndarray | None]]:
        """Score the units of texts; None for a text that cannot be judged."""
        by_method = {"llm": self._by_model, "reranker": self._by_ranker, "embedding": self._by_embedding}
        score = by_method.get(self.method, self._by_index)
        try:
            return (yield from score(texts, job))
        except Exception as error:
            if self.raise_on_failure:
                raise RuntimeError(f"The sentences could not be scored: {error}") from error
            job.fail(texts, str(error) or type(error).__name__)
            return [None] * len(texts)

    def _query_vector(self, job: "_Job") -> Steps[np.ndarray]:
        if job.query_embedding is None:
            job.query_embedding = (yield Call(self._text_embedder, "run", {"text": job.query}))["embedding"]
        vector: np.ndarray = _unit_rows(np.array([job.query_embedding]))[0]
        return vector

    def _by_index(self, texts: list["_Text"], job: "_Job") -> Steps[list[np.ndarray | None]]:
        query = yield from self._query_vector(job)
        wanted = [
            chunks.leaf_ids(text.meta, chunks.leaf_range(text.meta) or ()) if text.is_slice else [] for text in texts
        ]
        found: dict[str, Document] = {}
        if self.document_store is not None:
            found = yield from read_by_ids(self.document_store, [id_ for ids in wanted for id_ in ids])
        scores: list[np.ndarray | None] = []
        for text, ids in zip(texts, wanted, strict=True):
            leaves = [found[id_] for id_ in ids if id_ in found and found[id_].embedding]
            scores.append(_scores_of_leaves(text, leaves, query))
        unknown = [text for text, own in zip(texts, scores, strict=True) if own is None]
        embedded = iter((yield from self._by_embedding(unknown, job)) if unknown else [])
        return [next(embedded) if own is None else own for own in scores]

    def _by_embedding(self, texts: list["_Text"], job: "_Job") -> Steps[list[np.ndarray | None]]:
        query = yield from self._query_vector(job)
        sentences = [Document(id=str(n), content=sentence) for n, sentence in enumerate(_sentences(texts))]
        embedded = (yield Call(self._document_embedder, "run", {"documents": sentences}))["documents"]
        similarities = _unit_rows(np.array([sentence.embedding for sentence in embedded])) @ query
        return _per_text(texts, similarities)

    def _by_ranker(self, texts: list["_Text"], job: "_Job") -> Steps[list[np.ndarray | None]]:
        sentences = [Document(id=str(n), content=sentence) for n, sentence in enumerate(_sentences(texts))]
        inputs: dict[str, Any] = {"query": job.query, "documents": sentences}
        if "top_k" in self.ranker.__haystack_input__._sockets_dict:
            inputs["top_k"] = len(sentences)
        ranked = (yield Call(self.ranker, "run", inputs))["documents"]
        scored = {int(sentence.id): sentence.score for sentence in ranked if sentence.score is not None}
        lowest = min(scored.values(), default=0.0)
        return _per_text(texts, np.array([scored.get(n, lowest) for n in range(len(sentences))]))

    def _by_model(self, texts: list["_Text"], job: "_Job") -> Steps[list[np.ndarray | None]]:
        prompts = [
            self._prompt(
                query=harmless(job.query),
                sentences="\n".join(
                    f"[{number}] {harmless(unit.span.text(text.content))}" for number, unit in enumerate(text.units, 1)
                ),
            )
            for text in texts
        ]
        readers = [_reader(len(text.units)) for text in texts]
        replies: list[Reply[list[int]]] = yield from ask_many(
            self._model, prompts, read=readers, max_workers=self.max_workers, timeout=self.timeout
        )
        scores: list[np.ndarray | None] = []
        for text, reply in zip(texts, replies, strict=True):
            job.count(reply)
            own = None if reply.value is None else np.zeros(len(text.units))
            if own is None:
                job.fail([text], f"the model's choice could not be read: {reply.error}")
            else:
                own[[label - 1 for label in reply.value or []]] = 1.0
            scores.append(own)
        if self.raise_on_failure and job.fallbacks:
            raise RuntimeError("; ".join(job.fallbacks.values()))
        return scores

    def _summarize(self, job: "_Job") -> Steps[None]:
        """Give texts their summaries; those that the model or the check fails stay without a result."""
        texts = [text for text in job.texts if len(text.content) >= max(1, self.min_length)]
        groups = [[text] for text in texts] if self.per_document else [texts] if texts else []
        prompts = [
            self._prompt(
                query=harmless(job.query), passage="\n\n".join(quoted("passage", text.content) for text in group)
            )
            for group in groups
        ]
        replies: list[Reply[str]] = yield from ask_many(
            self._model, prompts, read=read_text, max_workers=self.max_workers, timeout=self.timeout
        )
        for group, reply in zip(groups, replies, strict=True):
            job.count(reply)
            source = "\n\n".join(text.content for text in group)
            summary = (reply.value or "").strip()
            if re.sub(r"\W", "", summary).casefold() == re.sub(r"\W", "", NO_OUTPUT).casefold():
                if self.drop_irrelevant:
                    job.texts = [text for text in job.texts if text not in group]
                else:
                    job.fail(group, "the model found nothing about the question")
            elif not summary:
                job.fail(group, f"the model failed: {reply.error}")
                if self.raise_on_failure:
                    raise RuntimeError("A document could not be summarised") from reply.error
            elif len(summary) > len(source):
                job.fail(group, "the summary is longer than its source")
            elif claims := unsupported(summary, source):
                job.fail(group, f"the summary says what its source does not: {', '.join(claims)}")
            else:
                group[0].summarize(summary, [text.document for text in group])
                job.texts = [text for text in job.texts if text not in group[1:]]


@dataclass(frozen=True)
class _Limits:
    max_length: int | None
    threshold: float | None
    top_k: int | None


class _Text:
    """A document on its way through the compressor."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.content = document.content or ""
        self.meta = document.meta
        self.is_slice = chunks.is_slice(document.meta, document.content)
        self.is_plain = chunks.KEPT_SPANS not in document.meta
        self.units: list[Unit] = []
        self.result: Document | None = None

    def keep(self, indices: Sequence[int], separator: str, method: str) -> None:
        """Keep some of the units."""
        parts: list[str] = []
        spans: list[Span] = []
        for index in indices:
            span = self.units[index].span
            if spans:
                gap = self.content[spans[-1].end : span.start]
                breaks = "\n\n" in gap.replace("\r\n", "\n")
                parts.append(gap if not gap.strip() else separator.rstrip() + "\n\n" if breaks else separator)
            parts.append(span.text(self.content))
            spans.append(span)
        self._finish("".join(parts), spans, method)

    def keep_whole(self) -> None:
        """Leave the document as it is."""
        self._finish(self.content, [Span(0, len(self.content))] if self.content and self.is_plain else None, "none")

    def summarize(self, summary: str, documents: Sequence[Document]) -> None:
        """Replace the document, or several, by a summary."""
        self._finish(summary, None, "abstractive")
        if len(documents) > 1 and self.result is not None:
            ids = [document.id for document in documents]
            meta = {key: value for key, value in self.result.meta.items() if key == "compression"}
            meta[chunks.EXPANDED_FROM] = ids
            self.result = replace(self.result, id=chunks.digest("summary", *ids), meta=meta)

    def _finish(self, content: str, spans: Sequence[Span] | None, method: str) -> None:
        meta = copy.deepcopy(self.meta) | {"compression": method}
        if spans is not None:
            start = self.meta[chunks.START] if self.is_slice else 0
            meta[chunks.KEPT_SPANS] = [[start + span.start, start + span.end] for span in spans]
        self.result = replace(self.document, content=content, meta=meta, embedding=None)


@dataclass
class _Job:
    """One run: the question, the texts, and what it costs."""

    query: str
    query_embedding: list[float] | None
    texts: list[_Text]
    fallbacks: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def fail(self, texts: Sequence[_Text], reason: str) -> None:
        self.fallbacks |= {text.document.id: reason for text in texts}

    def count(self, reply: Reply[Any]) -> None:
        self.calls += reply.calls
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens

    def report(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("fallbacks", "calls", "input_tokens", "output_tokens")}


def _sentences(texts: Sequence[_Text]) -> list[str]:
    return [unit.span.text(text.content) for text in texts for unit in text.units]


def _per_text(texts: Sequence[_Text], scores: np.ndarray) -> list[np.ndarray | None]:
    ends = np.cumsum([len(text.units) for text in texts])
    return list(np.split(scores, ends[:-1]))


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    rows: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return rows


def _scores_of_leaves(text: _Text, leaves: Sequence[Document], query: np.ndarray) -> np.ndarray | None:
    """Give each unit the similarities of the leaves that it overlaps, in proportion; None if one overlaps none."""
    if not leaves:
        return None
    spans = np.array([[leaf.meta[chunks.START], leaf.meta[chunks.END]] for leaf in leaves]) - text.meta[chunks.START]
    similarities = _unit_rows(np.array([leaf.embedding for leaf in leaves])) @ query
    units = np.array([unit.span for unit in text.units])
    overlaps = np.minimum(units[:, None, 1], spans[None, :, 1]) - np.maximum(units[:, None, 0], spans[None, :, 0])
    overlaps = np.maximum(overlaps, 0)
    totals = overlaps.sum(axis=1)
    if not totals.all():
        return None
    scores: np.ndarray = overlaps @ similarities / totals
    return scores


_VERDICT = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def _reader(count: int) -> Any:
    """Read the numbers of sentences; a verdict in place of numbers stands for all of them or none."""

    def read(text: str) -> tuple[list[int], bool]:
        try:
            return read_labels(text, count, allow_none=True, ranges=True)
        except ValueError:
            verdicts = {verdict.casefold() for verdict in _VERDICT.findall(text)}
            if len(verdicts) != 1:
                raise
            return (list(range(1, count + 1)) if verdicts == {"yes"} else []), True

    return read
