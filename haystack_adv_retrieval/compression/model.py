"""A chat model that compresses: it chooses sentences by their numbers, or writes summaries that are checked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from haystack.components.generators.chat.types import ChatGenerator

from haystack_adv_retrieval.calls import Steps
from haystack_adv_retrieval.compression.texts import Job, Text
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.grounding import unsupported
from haystack_adv_retrieval.core.replies.choices import read_choice
from haystack_adv_retrieval.llm.asking import Reply, ask_many, read_text
from haystack_adv_retrieval.llm.prompts import Prompt, harmless, quoted

SELECT_PROMPT = """\
Which of the numbered sentences help to answer the question? Reply with their numbers alone, separated by commas.
Reply 0 if none does.

Question: {{ query }}

{{ sentences }}"""

# Small models do what is said last, so the way out is said first.
SUMMARY_PROMPT = """\
If the passage is about something else than the question, reply NO_OUTPUT. Else reply with what it says about the
question: one to three short sentences in its own words, with names, numbers and conditions exactly as they are.

{{ passage }}

Question: {{ query }}"""

_NO_OUTPUT = re.compile(r"\bno[_ ]output\b", re.IGNORECASE)


@dataclass(frozen=True)
class CompressionModel:
    """
    The model and how it is asked.

    :param model: The chat generator, from `helper_model`.
    :param prompt: The template.
    :param max_workers: How many questions are asked at the same time.
    :param timeout: Seconds for one question; None for no limit.
    :param raise_on_failure: Whether to raise if a question is not answered, or not in a way that can be read.
    """

    model: ChatGenerator
    prompt: Prompt
    max_workers: int
    timeout: float | None
    raise_on_failure: bool

    def choose(self, texts: Sequence[Text], job: Job) -> Steps[list[Text]]:
        """
        Let the model choose sentences of each text: their relevance is 1, that of others is 0.

        :param texts: The texts.
        :param job: The job.
        :returns: The texts for which the reply could be read.
        """
        shown = [
            "\n".join(f"[{number}] {' '.join(harmless(one).split())}" for number, one in enumerate(text.sentences, 1))
            for text in texts
        ]
        replies = yield from self._ask(
            job,
            [{"sentences": sentences} for sentences in shown],
            read=[partial(read_choice, count=len(text.units)) for text in texts],
        )
        for text, reply in zip(texts, replies, strict=True):
            if reply.value is None:
                job.fail([text], f"the model's choice could not be read: {reply.error}")
            else:
                text.relevance = np.zeros(len(text.units))
                text.relevance[[number - 1 for number in reply.value]] = 1.0
                text.scores = text.relevance
        return [text for text, reply in zip(texts, replies, strict=True) if reply.value is not None]

    def summarize(self, groups: Sequence[list[Text]], job: Job, *, drop_irrelevant: bool) -> Steps[None]:
        """
        Put summaries in place of texts; those that the model or the check fails stay without a result.

        :param groups: Texts that are summarised together. The first of a group stands for all.
        :param job: The job; texts that are dropped leave it.
        :param drop_irrelevant: Whether to drop texts of which the model says that they hold nothing about the question.
        """
        passages = ["\n\n".join(quoted("passage", text.content) for text in group) for group in groups]
        replies = yield from self._ask(job, [{"passage": passage} for passage in passages], read=read_text)
        for group, reply in zip(groups, replies, strict=True):
            summary = (reply.value or "").strip()
            nothing = _NO_OUTPUT.search(summary)
            if nothing and drop_irrelevant and not re.search(r"\w", summary[: nothing.start()]):
                job.texts = [text for text in job.texts if text not in group]
            elif reason := _defect(reply, summary, "\n\n".join(text.content for text in group)):
                job.fail(group, reason)
            else:
                group[0].summarize(summary)
                if len(group) > 1:
                    _speak_for_all(group)
                    job.texts = [text for text in job.texts if text not in group[1:]]

    def _ask(self, job: Job, variables: Sequence[dict[str, str]], read: Any) -> Steps[list[Reply[Any]]]:
        prompts = [self.prompt(query=harmless(job.query), **each) for each in variables]
        replies: list[Reply[Any]] = yield from ask_many(
            self.model, prompts, read=read, max_workers=self.max_workers, timeout=self.timeout
        )
        for reply in replies:
            job.count(reply)
            if self.raise_on_failure and reply.value is None:
                raise RuntimeError(f"The chat model could not compress a document: {reply.error}") from reply.error
        return replies


def _defect(reply: Reply[str], summary: str, source: str) -> str | None:
    if not summary:
        return f"the model failed: {reply.error}"
    if _NO_OUTPUT.search(summary):
        return "the model found nothing about the question"
    if len(summary) > len(source):
        return "the summary is longer than its source"
    claims = unsupported(summary, source)
    return f"the summary says what its source does not: {', '.join(claims)}" if claims else None


def _speak_for_all(group: Sequence[Text]) -> None:
    """Give a summary of several documents an id of its own, and the ids of these as metadata."""
    if (result := group[0].result) is not None:
        ids = [text.document.id for text in group]
        meta = {chunks.COMPRESSION: result.meta[chunks.COMPRESSION], chunks.EXPANDED_FROM: ids}
        group[0].result = replace(result, id=chunks.digest("summary", *ids), meta=meta)
