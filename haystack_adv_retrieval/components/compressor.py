from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from haystack import Document, component, default_to_dict, logging
from haystack.components.embedders.types import DocumentEmbedder, TextEmbedder
from haystack.components.generators.chat.types import ChatGenerator
from haystack.core.serialization import component_to_dict
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.components.leaf_embedder import LeafEmbedder
from haystack_adv_retrieval.components.query_embedder import QueryEmbedder
from haystack_adv_retrieval.compression.extraction import keep_best
from haystack_adv_retrieval.compression.model import SELECT_PROMPT, SUMMARY_PROMPT, CompressionModel
from haystack_adv_retrieval.compression.sentence_scores import ask_ranker, embed, read_vectors, weigh
from haystack_adv_retrieval.compression.texts import Job, Text
from haystack_adv_retrieval.context.budgets import LengthUnit, length_of
from haystack_adv_retrieval.core.units import find_units
from haystack_adv_retrieval.llm.asking import helper_model, prepare, release
from haystack_adv_retrieval.llm.prompts import Prompt
from haystack_adv_retrieval.nested import Nested
from haystack_adv_retrieval.parameters import check_at_least, check_choice, check_positive, check_scoring

logger = logging.getLogger(__name__)

Method = Literal["index", "embedding", "reranker", "llm", "abstractive"]


@component
class Compressor:
    """
    Keeps what answers the question, and drops the padding around it.

    Large parents hold the answer and much else. The extractive methods keep sentences, exactly as they stand in the
    source, under one budget over all documents, and say which spans they are; a sentence of more than 60 words is kept
    in parts, code as a whole. A kept sentence brings along what it cannot be understood without: its heading, the
    header of its table, the lead-in of its list, the sentence it leans on. Headings and table headers are not kept on
    their own account.

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
        scales: Sequence[int] = (2, 4, 12, 36),
        lexical_weight: float = 0.8,
        section_weight: float = 3.0,
        context_sentences: int = 0,
        keep_antecedents: bool = True,
        cut_to_fit: bool = False,
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
            `haystack_adv_retrieval.llm.asking.helper_model`.
        :param max_length: Budget over all documents together. A budget that is smaller than the best sentence is
            exceeded by that sentence, unless `cut_to_fit` is set. Documents that fit it together are left as they are,
            unless `threshold` or `top_k` is set. Summaries, and documents that are left as they are, count too but are
            never cut.
        :param length_unit: Unit of lengths: `"character"`, `"word"` or `"token"`.
        :param threshold: The lowest similarity of a kept sentence to the question, itself included: the cosine of their
            vectors, or the score of the ranker. What lies above is ranked by more than that, see `scales`. Works
            together with `top_k`; what a kept sentence brings along need not reach it.
        :param top_k: How many sentences to keep at most, over all documents.
        :param min_sentences: How many sentences to keep of a kept document, if the budget allows.
        :param scales: Radii, in sentences, of the surroundings that a sentence is judged with. Which ones are best is
            told by `haystack_adv_retrieval.core.evidence`, from similarity (or the ranker's score), words and section.
        :param lexical_weight: Weight of a sentence's words; its similarity weighs 1.
        :param section_weight: Weight of the best sentence under the same heading. The more, the more whole sections are
            kept.
        :param context_sentences: How many neighbours on each side of a kept sentence are kept too, if the budget
            allows.
        :param keep_antecedents: Keep what a kept sentence needs to be understood, if the budget allows.
        :param cut_to_fit: Cut the best sentence that does not fit what is left of the budget, after a word, so that the
            budget is full and never exceeded; else less relevant sentences that fit whole are kept instead. A tight
            budget holds more evidence then, and one torn sentence.
        :param separator: Put where something was left out; between lines or paragraphs on a line of its own.
        :param drop_irrelevant: Drop documents of which nothing is kept; else the best sentence of each is kept,
            whatever its score, as far as the budget allows.
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
        check_positive(timeout=timeout)
        check_scoring(scales, lexical_weight=lexical_weight, section_weight=section_weight)
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
        self.scales = list(scales)
        self.lexical_weight = float(lexical_weight)
        self.section_weight = float(section_weight)
        self.context_sentences = context_sentences
        self.keep_antecedents = keep_antecedents
        self.cut_to_fit = cut_to_fit
        self.separator = separator
        self.drop_irrelevant = drop_irrelevant
        self.min_length = min_length
        self.per_document = per_document
        self.language = language
        self.prompt = prompt
        self.max_workers = max_workers
        self.timeout = timeout
        self.raise_on_failure = raise_on_failure
        self._text_embedder = Nested(text_embedder or QueryEmbedder())
        self._document_embedder = Nested(document_embedder or LeafEmbedder())
        self._ranker = Nested(ranker)
        model = helper_model(chat_generator) if method in ("llm", "abstractive") else None
        self._chat_generator = Nested(model, prepare, release)
        template, variable = (SELECT_PROMPT, "sentences") if method == "llm" else (SUMMARY_PROMPT, "passage")
        asked = Prompt(prompt or template, {"query", variable})
        self._model = CompressionModel(self._chat_generator.part, asked, max_workers, timeout, raise_on_failure)
        self._needed = {
            "index": [],
            "embedding": [self._text_embedder, self._document_embedder],
            "reranker": [self._ranker],
        }.get(method, [self._chat_generator])

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the component.

        :returns: A dictionary that `from_dict` reads.
        """
        parameters = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        for name in ("text_embedder", "document_embedder", "ranker", "chat_generator"):
            if parameters[name] is not None:
                parameters[name] = component_to_dict(parameters[name], name)
        return default_to_dict(self, **parameters)

    def warm_up(self) -> None:
        """Load the models that the method is sure to need."""
        drive(self._warm_up())

    async def warm_up_async(self) -> None:
        """Load the models that the method is sure to need, asynchronously."""
        await drive_async(self._warm_up())

    def close(self) -> None:
        """Close the models that were loaded."""
        drive(self._close())

    async def close_async(self) -> None:
        """Close the models that were loaded, asynchronously."""
        await drive_async(self._close())

    def _warm_up(self) -> Steps[None]:
        for part in self._needed:
            yield from part.warm_up()

    def _close(self) -> Steps[None]:
        for part in (self._text_embedder, self._document_embedder, self._ranker, self._chat_generator):
            yield from part.close()

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
        :raises ValueError: If the key of the chat generator is missing.
        """
        return drive(self._compress(query, documents, query_embedding, max_length, threshold, top_k))

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
        return await drive_async(self._compress(query, documents, query_embedding, max_length, threshold, top_k))

    def _compress(
        self,
        query: str,
        documents: list[Document],
        query_embedding: list[float] | None,
        max_length: int | None,
        threshold: float | None,
        top_k: int | None,
    ) -> Steps[dict[str, Any]]:
        check_at_least(1, max_length=max_length, top_k=top_k)
        job = Job(query, query_embedding, [Text(document) for document in documents])
        if documents:
            yield from self._warm_up()
        if self.method == "abstractive":
            yield from self._summarize(job)
        if job.rest:
            yield from self._extract(
                job,
                self.max_length if max_length is None else max_length,
                self.threshold if threshold is None else threshold,
                self.top_k if top_k is None else top_k,
            )
        if job.fallbacks:
            logger.warning(
                "Compressor fell back for {count} documents, such as: {reason}",
                count=len(job.fallbacks),
                reason=next(iter(job.fallbacks.values())),
            )
        given, kept = (sum(len(each.content or "") for each in some) for some in (documents, job.results))
        report = {name: getattr(job, name) for name in ("fallbacks", "calls", "input_tokens", "output_tokens")}
        return {"documents": job.results, "report": {"given": given, "kept": kept, **report}}

    def _summarize(self, job: Job) -> Steps[None]:
        texts = [text for text in job.texts if text.content.strip() and len(text.content) >= self.min_length]
        groups = [[text] for text in texts] if self.per_document else [texts] if texts else []
        yield from self._model.summarize(groups, job, drop_irrelevant=self.drop_irrelevant)

    def _extract(self, job: Job, max_length: int | None, threshold: float | None, top_k: int | None) -> Steps[None]:
        """Keep sentences of the texts without a result; texts of which nothing is kept stay without one."""
        for text in job.rest:
            if text.is_extract or len(text.content) < self.min_length or not text.content.strip():
                text.keep_whole()
        texts = job.rest
        is_open = threshold is None and top_k is None and self.method != "llm"
        whole = self._length(text.content if text.result is None else text.result.content for text in job.texts)
        if is_open and (max_length is None or whole <= max_length):
            for text in texts:
                text.keep_whole()
            return
        if not texts:
            return
        for text in texts:
            text.units = find_units(text.content, self.language)
        judged = yield from self._judge(texts, job)
        for text in texts:
            if text not in judged:  # nobody could tell
                text.keep_whole()
        used = self._length(result.content for result in job.results)
        keep_best(
            judged,
            method="index" if self.method == "abstractive" else self.method,
            length_unit=self.length_unit,
            separator=self.separator,
            keep_antecedents=self.keep_antecedents,
            keep_each=not self.drop_irrelevant,
            cut_to_fit=self.cut_to_fit,
            max_length=None if max_length is None else max_length - used,
            threshold=0.5 if self.method == "llm" else threshold,
            top_k=top_k,
            min_sentences=self.min_sentences,
            context_sentences=self.context_sentences,
        )

    def _length(self, contents: Iterable[str | None]) -> int:
        return sum(length_of(content or "", self.length_unit) for content in contents)

    def _judge(self, texts: list[Text], job: Job) -> Steps[list[Text]]:
        """Score the units of texts, and tell of which texts they could be scored."""
        try:
            if self.method == "llm":
                return (yield from self._model.choose(texts, job))
            query = None
            if self.method == "reranker":
                yield from ask_ranker(texts, job.query, self._ranker)
            else:
                query = yield from self._vectors(texts, job)
            weigh(
                texts,
                job.query,
                query,
                scales=self.scales,
                lexical_weight=self.lexical_weight,
                section_weight=self.section_weight,
            )
            return texts
        except Exception as error:
            if self.raise_on_failure:
                raise RuntimeError(f"The sentences could not be scored: {error}") from error
            job.fail(texts, str(error) or type(error).__name__)
            return []

    def _vectors(self, texts: list[Text], job: Job) -> Steps[np.ndarray]:
        """Find vectors for all units, and that of the question."""
        if job.query_embedding is None:
            job.query_embedding = (yield from self._text_embedder.run(text=job.query))["embedding"]
        if self.method != "embedding" and self.document_store is not None:
            yield from read_vectors(texts, self.document_store)
        if unknown := [text for text in texts if not len(text.vectors)]:
            yield from embed(unknown, self._document_embedder)
        return np.array(job.query_embedding)
