"""What is compared: functions from a question to the documents that a model would read, mostly pipelines."""

from collections.abc import Callable
from typing import Any, NamedTuple

from haystack import Document, Pipeline

from haystack_adv_retrieval.core.chunks import KEPT_SPANS, SOURCE_ID, START, span_of
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.evaluation.metrics import Passage
from haystack_adv_retrieval.pipelines import last_documents, run_pipeline


class Answer(NamedTuple):
    """
    What a strategy gives for a question.

    :param documents: The context, best first.
    :param reply: The text that a model wrote from it, if the strategy goes that far.
    """

    documents: list[Document]
    reply: str | None = None


Strategy = Callable[[str], Answer]


def pipeline_strategy(pipeline: Pipeline, **values: Any) -> Strategy:
    """
    Make a strategy of a pipeline.

    :param pipeline: The pipeline; the documents that it ends with are the context.
    :param values: Further inputs, as for `run_pipeline`, such as `top_k`.
    :returns: The strategy.
    """

    def ask(question: str) -> Answer:
        outputs = run_pipeline(pipeline, question, **values)
        return Answer(last_documents(pipeline, outputs), _reply(outputs))

    return ask


def passage(document: Document) -> Passage:
    """
    Read off a result what it shows of its source.

    :param document: A result: a chunk of our index or of Haystack's own splitters, expanded or compressed or neither.
    :returns: The kept spans if it was compressed, else its whole span, else, where its text is not that of a span, only
        its length.
    """
    content = document.content or ""
    start = document.meta.get(START)
    if KEPT_SPANS in document.meta:
        spans = tuple(Span(int(start), int(end)) for start, end, *_ in document.meta[KEPT_SPANS])
    else:
        whole = span_of(document.meta) or (Span(start, start + len(content)) if isinstance(start, int) else None)
        spans = (whole,) if whole and whole.length == len(content) else ()
    length = sum(span.length for span in spans) if spans else len(content)
    return Passage(document.meta.get(SOURCE_ID), spans, length)


def _reply(outputs: dict[str, Any]) -> str | None:
    for sockets in outputs.values():
        for answer in sockets.get("answers", ()):
            return str(answer.data)
        for reply in sockets.get("replies", ()):
            return getattr(reply, "text", None) or str(reply)
    return None
