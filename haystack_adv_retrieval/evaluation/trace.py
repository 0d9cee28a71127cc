"""What a pipeline run costs: the time of each component, and the calls and tokens of chat models."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from haystack import Document
from haystack.tracing.tracer import Span, Tracer, enable_tracing, tracer

from haystack_adv_retrieval.core.chunks import UNIT, span_of

_COMPONENT_RUN, _CHAT_RUN = "haystack.component.run", "haystack.chat_generator.run"
_OUTPUT = "haystack.component.output"


@dataclass
class Trace:
    """
    The costs of one run.

    :param components: Seconds of each component of the pipeline; nested components count for the one around them.
    :param llm_calls: How often a chat model was asked.
    :param prompt_tokens: Tokens that the models read, as far as they report them.
    :param completion_tokens: Tokens that the models wrote, as far as they report them.
    :param summaries: Length of the section and of its summary, in characters, of every summary that was met, by id.
    """

    components: dict[str, float] = field(default_factory=dict)
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    summaries: dict[str, tuple[int, int]] = field(default_factory=dict)


class _Span(Span):
    def __init__(self, operation: str, tags: dict[str, Any], parent: "_Span | None") -> None:
        self.operation, self.tags, self.parent = operation, tags, parent
        self.seconds = 0.0

    def set_tag(self, key: str, value: Any) -> None:
        self.tags[key] = value

    # Outputs are needed whether or not content tracing is switched on: usage stands in them.
    set_content_tag = set_tag

    @property
    def ancestors(self) -> "Iterator[_Span]":
        span = self.parent
        while span:
            yield span
            span = span.parent


class _Recorder(Tracer):
    def __init__(self) -> None:
        self.spans: list[_Span] = []
        self._current: ContextVar[_Span | None] = ContextVar("span", default=None)

    @contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: Span | None = None
    ) -> Iterator[_Span]:
        parent = parent_span if isinstance(parent_span, _Span) else self._current.get()
        span = _Span(operation_name, dict(tags or {}), parent)
        token = self._current.set(span)
        start = time.perf_counter()
        try:
            yield span
        finally:
            span.seconds = time.perf_counter() - start
            self._current.reset(token)
            self.spans.append(span)

    def current_span(self) -> _Span | None:
        return self._current.get()


@contextmanager
def traced() -> Iterator[Trace]:
    """
    Record the pipeline runs inside a `with` block; a tracer that was active before is active again after it.

    :returns: The trace, filled when the block ends.
    """
    trace, recorder, previous = Trace(), _Recorder(), tracer.actual_tracer
    enable_tracing(recorder)
    try:
        yield trace
    finally:
        enable_tracing(previous)
        _fill(trace, recorder.spans)


def _fill(trace: Trace, spans: list[_Span]) -> None:
    answered: set[_Span] = set()  # spans around a model call that is already counted
    for span in spans:  # inner spans end first
        output = span.tags.get(_OUTPUT)
        output = output if isinstance(output, dict) else {}
        for document in (item for value in output.values() if isinstance(value, list) for item in value):
            if isinstance(document, Document) and document.meta.get(UNIT) == "summary":
                section = span_of(document.meta)
                if section:
                    trace.summaries[document.id] = section.length, len(document.content or "")
        kind = str(span.tags.get("haystack.component.type", ""))
        if (span.operation == _CHAT_RUN or "Generator" in kind) and span not in answered:
            answered.update(span.ancestors)
            trace.llm_calls += 1
            for reply in output.get("replies", ()):
                usage = getattr(reply, "meta", {}).get("usage") or {}
                trace.prompt_tokens += usage.get("prompt_tokens") or usage.get("input_tokens") or 0
                trace.completion_tokens += usage.get("completion_tokens") or usage.get("output_tokens") or 0
        if span.operation == _COMPONENT_RUN and not any(outer.operation == _COMPONENT_RUN for outer in span.ancestors):
            name = str(span.tags["haystack.component.name"])
            trace.components[name] = trace.components.get(name, 0.0) + span.seconds
