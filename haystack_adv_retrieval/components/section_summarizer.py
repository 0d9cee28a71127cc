import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from haystack import Document, component, logging
from haystack.components.generators.chat.types import ChatGenerator
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.context.budgets import length_of
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.evidence import unit
from haystack_adv_retrieval.core.sentences import sentence_spans
from haystack_adv_retrieval.core.summaries import central_sentences, word_vectors
from haystack_adv_retrieval.llm.asking import Reply, ask_many, helper_model, prepare, read_text, release
from haystack_adv_retrieval.llm.prompts import Prompt, quoted, shown
from haystack_adv_retrieval.nested import Nested
from haystack_adv_retrieval.parameters import check_at_least, check_choice, check_positive
from haystack_adv_retrieval.stores import read_by_ids

logger = logging.getLogger(__name__)

Method = Literal["extractive", "llm"]


class _Summary(NamedTuple):
    text: str
    method: str  # how it was made, for `chunks.SUMMARY_METHOD`
    lasts: bool = True  # False where the model failed, so that it is tried again


PROMPT = """\
Summarise the text below in at most {{ sentences }} sentences, so that a search for anything it says finds it.
Keep its concepts, terms, names, numbers and conditions. Write the summary alone, in the language of the text.

{{ section }}"""


@component
class SectionSummarizer:
    """
    Writes a summary of each section, to be searched instead of its details.

    A summary is a document of its own in the same index: `meta["unit"]` is "summary", `meta["parent_id"]` is its
    section, and it has the section's span. `ParentExpander` turns a hit into the section, `SummaryRouter` into a filter
    for the section's leaves. What was summarised before is read from the index and costs no call. Without a model, or
    where it fails or says no less than the section, the section's most central sentences are its summary; a short
    section is its own.

    ### Usage example
    ```python
    from haystack import Document
    from haystack_adv_retrieval import HierarchicalSplitter, SectionSummarizer

    text = "# Refunds\\n" + "Refunds take 14 days after approval of the return. " * 5
    parents = HierarchicalSplitter(block_sizes=[100, 10]).run(documents=[Document(content=text)])["parents"]
    print(SectionSummarizer(sentences=1).run(parents=parents)["summaries"][0].content)
    ```
    """

    def __init__(
        self,
        chat_generator: ChatGenerator | None = None,
        method: Method | None = None,
        *,
        level: int = 1,
        sentences: int = 3,
        min_length: int = 60,
        max_section_length: int = 12_000,
        document_store: DocumentStore | None = None,
        prompt: str | None = None,
        max_workers: int = 4,
        timeout: float | None = 300.0,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create a SectionSummarizer.

        :param chat_generator: The model that summarises.
        :param method: `"llm"` or `"extractive"`. None is `"llm"` if a `chat_generator` is given; `"llm"` without one
            asks the default model, see `haystack_adv_retrieval.llm.asking.helper_model`.
        :param level: The level whose chunks are summarised, 1 being the coarsest.
        :param sentences: How many sentences a summary has at most.
        :param min_length: Sections with fewer words are their own summary.
        :param max_section_length: Characters of a section that the model reads.
        :param document_store: The index, from which summaries of unchanged sections are taken. None takes none.
        :param prompt: Jinja template instead of `PROMPT`; it has to use `section` (headings and text, between
            `<text>` tags) and may use `sentences`.
        :param max_workers: How many sections are summarised at the same time.
        :param timeout: Seconds for one section; None for no limit. Nobody waits for an answer here, and a local model
            that gets several sections at a time may need minutes.
        :param raise_on_failure: Raise if the model fails, instead of falling back to central sentences.
        :raises ValueError: If a parameter is out of its range.
        """
        if method is not None:
            check_choice("method", method, Method)
        check_at_least(
            1, level=level, sentences=sentences, max_section_length=max_section_length, max_workers=max_workers
        )
        check_at_least(0, min_length=min_length)
        check_positive(timeout=timeout)
        self.chat_generator = chat_generator
        self.method = method
        self.level = level
        self.sentences = sentences
        self.min_length = min_length
        self.max_section_length = max_section_length
        self.document_store = document_store
        self.prompt = prompt
        self.max_workers = max_workers
        self.timeout = timeout
        self.raise_on_failure = raise_on_failure
        self._prompt = Prompt(prompt or PROMPT, {"section"}, {"sentences"})
        wants_model = method == "llm" or (method is None and chat_generator is not None)
        self._model = Nested(helper_model(chat_generator), prepare, release) if wants_model else None

    @property
    def settings(self) -> str:
        """What decides, besides the section, what its summary says, as a hash: a summary of other settings is stale."""
        made_by: list[str | int] = []
        if self._model is not None:
            name = getattr(self._model.part, "model", type(self._model.part).__name__)
            made_by = [name, self.prompt or PROMPT, self.max_section_length]
        return chunks.digest(self.level, self.sentences, self.min_length, *made_by)

    def warm_up(self) -> None:
        """Warm up the model."""
        if self._model is not None:
            drive(self._model.warm_up())

    async def warm_up_async(self) -> None:
        """Warm up the model, asynchronously."""
        if self._model is not None:
            await drive_async(self._model.warm_up())

    def close(self) -> None:
        """Close the model's connections."""
        if self._model is not None:
            drive(self._model.close())

    async def close_async(self) -> None:
        """Close the model's connections, asynchronously."""
        if self._model is not None:
            await drive_async(self._model.close())

    @component.output_types(summaries=list[Document], report=dict[str, Any])
    def run(self, parents: list[Document], documents: list[Document] | None = None) -> dict[str, Any]:
        """
        Summarise sections.

        :param parents: Chunks of any level; those of `level` are summarised.
        :param documents: Leaves with embeddings. A section all of whose leaves are among them, each a sentence, is
            summarised by their vectors; others by the words of their sentences.
        :returns: `summaries`: one per section, in the same order; `report`: how many were `reused` from the index, made
            by `"llm"`, `"extractive"` or `"verbatim"`, how many `failed` at the model, and `calls`, `input_tokens`,
            `output_tokens`.
        :raises RuntimeError: If the model fails and `raise_on_failure` is set.
        """
        return drive(self._summarize(parents, documents or []))

    @component.output_types(summaries=list[Document], report=dict[str, Any])
    async def run_async(self, parents: list[Document], documents: list[Document] | None = None) -> dict[str, Any]:
        """
        Summarise sections, asynchronously.

        :param parents: As for `run`.
        :param documents: As for `run`.
        :returns: As `run`.
        :raises RuntimeError: As `run`.
        """
        return await drive_async(self._summarize(parents, documents or []))

    def _summarize(self, parents: list[Document], leaves: list[Document]) -> Steps[dict[str, Any]]:
        sections = [parent for parent in parents if parent.meta.get(chunks.LEVEL) == self.level]
        keys = [self._key(section) for section in sections]
        known = yield from self._read_known(sections)
        reused = sum(key in known for key in keys)
        made: dict[str, _Summary] = {}
        long: dict[str, Document] = {}
        for key, section in zip(keys, sections, strict=True):
            if key in known or key in made or key in long:
                continue
            if length_of(section.content or "", "word") < self.min_length:
                made[key] = _Summary((section.content or "").strip(), "verbatim")
            else:
                long[key] = section
        replies: list[Reply[str] | None] = yield from self._ask(list(long.values()))
        by_leaf = {(leaf.meta[chunks.SOURCE_ID], leaf.meta[chunks.SPLIT_ID]): leaf for leaf in leaves if leaf.embedding}
        for (key, section), reply in zip(long.items(), replies, strict=True):
            said = reply and reply.value
            if said and len(said) < len(section.content or ""):
                made[key] = _Summary(said, "llm")
            else:  # small models like to repeat the text
                lasts = reply is None or said is not None
                made[key] = _Summary(self._extract(section, by_leaf), "extractive", lasts)
        methods = Counter(summary.method for summary in made.values())
        asked = [reply for reply in replies if reply is not None]
        report = {
            "reused": reused,
            **{method: methods[method] for method in ("llm", "extractive", "verbatim")},
            "failed": sum(reply.outcome == "failed" for reply in asked),
            "calls": sum(reply.calls for reply in asked),
            "input_tokens": sum(reply.input_tokens for reply in asked),
            "output_tokens": sum(reply.output_tokens for reply in asked),
        }
        texts = known | made
        summaries = [self._document(section, key, texts[key]) for section, key in zip(sections, keys, strict=True)]
        return {"summaries": summaries, "report": report}

    def _key(self, section: Document) -> str:
        return chunks.digest(self.settings, section.meta.get(chunks.HEADINGS, ""), section.content or "")

    def _read_known(self, sections: list[Document]) -> Steps[dict[str, _Summary]]:
        """Read the lasting summaries that the index holds of the sections' sources, by their keys."""
        if self.document_store is None or not sections:
            return {}
        sources = {section.meta[chunks.SOURCE_ID] for section in sections}
        records = yield from read_by_ids(self.document_store, map(chunks.source_record_id, sources))
        ids: list[str] = []
        for record in records.values():
            if chunks.SUMMARY_COUNT in record.meta:
                searched, _ = chunks.version_ids(record.meta)
                ids += searched[: len(searched) - record.meta[chunks.LEAF_COUNT]]
        stored = yield from read_by_ids(self.document_store, ids)
        return {
            summary.meta[chunks.SUMMARY_KEY]: _Summary(summary.content or "", summary.meta[chunks.SUMMARY_METHOD])
            for summary in stored.values()
            if chunks.SUMMARY_SETTINGS in summary.meta
        }

    def _ask(self, sections: list[Document]) -> Steps[list[Reply[str] | None]]:
        if self._model is None or not sections:
            return [None] * len(sections)
        yield from self._model.warm_up()
        texts = (shown(section, [chunks.HEADINGS], self.max_section_length) for section in sections)
        prompts = [self._prompt(section=quoted("text", text), sentences=self.sentences) for text in texts]
        replies: list[Reply[str]] = yield from ask_many(
            self._model.part, prompts, read=read_text, max_workers=self.max_workers, timeout=self.timeout
        )
        failed = [reply for reply in replies if reply.outcome == "failed"]
        if failed and self.raise_on_failure:
            raise RuntimeError(f"{len(failed)} sections could not be summarised") from failed[0].error
        if failed:
            logger.warning(
                "{count} of {all} sections could not be summarised, such as with: {error}. Their most central "
                "sentences are their summaries.",
                count=len(failed),
                all=len(replies),
                error=failed[0].error,
            )
        return list(replies)

    def _extract(self, section: Document, leaves: dict[tuple[str, int], Document]) -> str:
        """Choose the section's most central sentences."""
        text = section.content or ""
        ordinals: Iterable[int] = chunks.leaf_range(section.meta) or ()
        inside = [leaves.get((section.meta[chunks.SOURCE_ID], ordinal)) for ordinal in ordinals]
        embedded = [leaf for leaf in inside if leaf is not None]
        if embedded and len(embedded) == len(inside) and all(_is_sentence(leaf) for leaf in embedded):
            sentences = [leaf.content or "" for leaf in embedded]
            vectors = unit(np.array([leaf.embedding for leaf in embedded]))
        else:
            sentences = [span.text(text) for span in sentence_spans(text)]
            vectors = word_vectors(sentences)
        return " ".join(sentences[index].strip() for index in central_sentences(sentences, vectors, self.sentences))

    def _document(self, section: Document, key: str, summary: _Summary) -> Document:
        meta = copy.deepcopy(section.meta) | {
            chunks.UNIT: "summary",
            chunks.PARENT_ID: section.id,
            chunks.PARENT_START: section.meta[chunks.START],
            chunks.PARENT_END: section.meta[chunks.END],
            chunks.SUMMARY_METHOD: summary.method,
            chunks.SUMMARY_KEY: key,
        }
        if summary.lasts:
            meta[chunks.SUMMARY_SETTINGS] = self.settings
        return Document(id=chunks.summary_id(section.id), content=summary.text, meta=meta)


def _is_sentence(leaf: Document) -> bool:
    return len(sentence_spans(leaf.content or "")) == 1
