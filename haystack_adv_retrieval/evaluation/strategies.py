"""What is compared: functions from a question to the documents that a model would read, mostly pipelines."""

from collections.abc import Callable
from typing import Any, NamedTuple

import networkx
from haystack import Document, Pipeline

from haystack_adv_retrieval.core.chunks import KEPT_SPANS, SOURCE_ID, START, span_of
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.evaluation.metrics import Passage

QUESTION_SOCKETS = ("query", "question", "text")


class Answer(NamedTuple):
    """
    What a strategy gives for a question.

    :param documents: The context, best first.
    :param reply: The text that a model wrote from it, if the strategy goes that far.
    """

    documents: list[Document]
    reply: str | None = None


Strategy = Callable[[str], Answer]


class PipelineStrategy:
    """Puts questions to a pipeline, whatever its components are called."""

    def __init__(self, pipeline: Pipeline, *, documents_from: str | None = None) -> None:
        """
        Find out where a question goes in and where the context comes out.

        :param pipeline: The pipeline. The question is given to every unconnected input that is called `query`,
            `question` or `text`.
        :param documents_from: The component whose `documents` are the context. By default the last one that has such
            an output.
        :raises ValueError: If nothing takes a question, or if the context could come from several components.
        """
        self.pipeline = pipeline
        self.inputs = {
            name: [socket for socket in sockets if socket in QUESTION_SOCKETS]
            for name, sockets in pipeline.inputs().items()
            if any(socket in QUESTION_SOCKETS for socket in sockets)
        }
        if not self.inputs:
            raise ValueError(f"no component of the pipeline has a free input among {', '.join(QUESTION_SOCKETS)}")
        self.documents_from = documents_from or _last_with_documents(pipeline)

    def __call__(self, question: str) -> Answer:
        """
        Run the pipeline.

        :param question: The question.
        :returns: The context and the reply, None if the pipeline writes none.
        """
        data = {name: dict.fromkeys(sockets, question) for name, sockets in self.inputs.items()}
        outputs = self.pipeline.run(data, include_outputs_from={self.documents_from})
        return Answer(outputs.get(self.documents_from, {}).get("documents", []), _reply(outputs))


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


def _last_with_documents(pipeline: Pipeline) -> str:
    outputs = pipeline.outputs(include_components_with_connected_outputs=True)
    names = [name for name, sockets in outputs.items() if "documents" in sockets]
    last = [name for name in names if not networkx.descendants(pipeline.graph, name) & set(names)]
    if len(last) != 1:
        raise ValueError(f"documents_from must name one of {sorted(last)}" if last else "the pipeline has no documents")
    return last[0]


def _reply(outputs: dict[str, Any]) -> str | None:
    for sockets in outputs.values():
        for answer in sockets.get("answers", ()):
            return str(answer.data)
        for reply in sockets.get("replies", ()):
            return getattr(reply, "text", None) or str(reply)
    return None
